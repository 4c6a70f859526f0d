"""What a collector says of itself, however much there is to say."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline import json_text, wire
from logpipeline.deduplication import COUNT_MAX, Loss
from logpipeline_collector.reports import (
    LOSSES_LISTED_MAX,
    MISSING_LISTED_MAX,
    StatusReports,
    encoded_report,
)
from logpipeline_collector.sink import Removed
from logpipeline_collector.status_question import LossesAsked

BYTES_MAX = 1024 * 1024 - 1024
SHORT = "/var/log/containers/app.log"
# As long as a path may be; each of its characters takes six bytes in JSON.
LONG = "\x01" * 4096


class Numbers(SimpleNamespace):
    """Something with numbers that do not matter here."""

    def __getattr__(self, _: str) -> int:
        return 0


@pytest.mark.parametrize(
    ("partitions", "name", "listed"),
    [(2, SHORT, LOSSES_LISTED_MAX), (64, SHORT, 1), (1, LONG, 1), (64, LONG, 0)],
)
def test_a_status_fits_into_a_message(partitions: int, name: str, listed: int) -> None:
    """Lists become shorter, each says how many it leaves out, and sums hold all."""
    workers = [worker(number, name) for number in range(partitions)]
    text = encoded_report(context(), cast("Any", workers), bytes_max=BYTES_MAX)

    assert len(text) <= BYTES_MAX
    rows = json.loads(text)["partitions"]
    assert len(rows) == partitions
    for row in rows:
        assert len(row["losses"]) >= listed
        assert len(row["losses"]) + row["losses_left_out"] == 250
        assert len(row["missing"]) + row["missing_left_out"] == 60
        assert len(row["missing"]) <= MISSING_LISTED_MAX
        assert row["lost_bytes"] == 250


def test_a_status_can_be_read_whatever_was_counted() -> None:
    """Who cannot read it hears nothing of losses and damage."""
    made = worker(0, SHORT)
    made.owned.writer.lines = 5 * wire.OFFSET_MAX
    made.owned.lag.bytes = 2**64
    text = encoded_report(context(), cast("Any", [made]), bytes_max=BYTES_MAX)

    assert json_text.parse(text)["partitions"][0]["lines"] == COUNT_MAX


@pytest.mark.parametrize("name", [SHORT, LONG])
def test_all_losses_of_a_partition_can_be_asked_for(name: str) -> None:
    """Part by part, as many as fit into a message; only its owner answers."""
    reports = StatusReports(context(), {3: cast("Any", worker(3, name))})
    starts: list[int] = []
    while len(starts) < 250:
        asked = LossesAsked("main", 3, known=len(starts))
        text = reports._answer_to(asked.encode(), BYTES_MAX)
        [row] = json.loads(text)["partitions"]
        assert len(text) <= BYTES_MAX
        assert row["losses"]
        starts += [each["start"] for each in row["losses"]]
        assert len(starts) + row["losses_left_out"] == 250

    assert starts == list(range(250))
    for other in (LossesAsked("main", 4, known=0), LossesAsked("audit", 3, known=0)):
        assert reports._answer_to(other.encode(), BYTES_MAX) == b""


@pytest.mark.parametrize("question", [b"", b"{}", b'{"losses": 3}', b"[" * 5000, b"\xff"])
def test_any_other_question_is_one_for_the_whole_status(question: bytes) -> None:
    """Also one that a later version asks."""
    reports = StatusReports(context(), {3: cast("Any", worker(3, SHORT))})

    assert json.loads(reports._answer_to(question, BYTES_MAX))["member"] == "collector-0"


def worker(partition: int, name: str) -> Any:
    """Return a partition with 250 losses of a byte, and 60 sources with holes."""
    losses = [
        ("h", name, Loss("0" * 16, number, number + 1, "rotated", 1)) for number in range(250)
    ]
    writer = Numbers(
        lost_bytes=250,
        losses=lambda: losses,
        missing=lambda: [("h", name, 1) for _ in range(60)],
        removed=Removed(),
    )
    held = SimpleNamespace(record=SimpleNamespace(succession=None))
    nothing: dict[str, Any] = {"problem": None, "commit_problem": None, "warning": ""}
    owned = Numbers(
        writer=writer, held=held, lag=Numbers(), position=Numbers(), committed=Numbers(), **nothing
    )
    return SimpleNamespace(partition=partition, owned=owned, problem=None, is_wanted=True)


def context() -> Any:
    """Return the rest of a collector."""
    letters = SimpleNamespace(not_kept={})
    return SimpleNamespace(
        config=SimpleNamespace(group="main", member="collector-0"),
        folder=SimpleNamespace(incarnation="a-b"),
        storage=SimpleNamespace(open_files=0),
        intake=SimpleNamespace(dead_letters=letters),
    )
