"""What a shipper says of itself, however many sources it has."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline import json_text
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.status import HOSTS_SHOWN_MAX, SOURCES_SHOWN_MAX, describe

BYTES_MAX = 1024 * 1024 - 1024


class Numbers(SimpleNamespace):
    """Something with numbers that do not matter here."""

    def __getattr__(self, _: str) -> Any:
        return 0


def source(
    host: str, path: str, *, missing: int = 0, backlog: int = 0, behind_s: float | None = None
) -> Any:
    """Return a source of which so much is missing, and waits since *behind_s*."""
    chain = Numbers(
        position=lambda: None, backlog_bytes=lambda: backlog, missing_bytes=missing, unseen=0
    )
    account = Numbers(on_the_way=1)
    key = Key(host, path)
    return Numbers(key=key, chain=chain, account=account, acked_bytes=10, behind_since_s=behind_s)


def answer_of(*sources: Any) -> dict[str, Any]:
    """Return the answer of a shipper that has *sources*, at 100 s by its clock."""
    hosts = {each.key.host: "" for each in sources}
    zero = dict.fromkeys(("backlog_bytes", "unconfirmed_s", "on_the_way_bytes"), lambda: 0)
    manager = SimpleNamespace(
        sources={each.key: each for each in sources},
        hosts=hosts,
        refused_hosts=set(),
        counts=Counter(),
        unseen=SimpleNamespace(at=lambda _: 0),
        failing=dict,
        to_be_named_bytes=lambda: 0,
        **zero,
    )
    shared = Numbers(clock=lambda: 100.0, totals=Numbers(), sender=Numbers())
    shared.quarantine = Numbers(kept=lambda: 0)
    health = SimpleNamespace(ready=lambda: None, live=lambda: None, answer_bytes_max=BYTES_MAX)
    text = describe(cast("Any", manager), cast("Any", shared), cast("Any", health), "s")
    assert len(text) <= BYTES_MAX
    answer: dict[str, Any] = json_text.parse(text)
    return answer


def test_what_misses_bytes_comes_before_what_waits() -> None:
    """Also where nothing of it waits, and there are more sources than are listed."""
    many = [source("h", f"/{at}", backlog=at) for at in range(SOURCES_SHOWN_MAX)]

    answer = answer_of(*many, source("h", "/gone", missing=1))

    named = [row["source"] for row in answer["sources"]]
    assert named[:2] == ["/gone", f"/{SOURCES_SHOWN_MAX - 1}"]
    assert len(named) == SOURCES_SHOWN_MAX
    assert answer["sources_total"] == SOURCES_SHOWN_MAX + 1


def test_sums_of_hosts_hold_the_sources_that_are_not_listed() -> None:
    """And say for how long something of these has waited."""
    rows = [source(f"h{at % 2}", f"/{at}", backlog=at + 5) for at in range(SOURCES_SHOWN_MAX)]
    rest = [source("h1", "/a", backlog=2), source("h1", "/b", backlog=1, behind_s=40.0)]

    few, many = answer_of(*rows), answer_of(*rows, *rest)

    assert "by_host" not in few
    assert many["by_host"][0] == {
        "host": "h1",
        "sources": SOURCES_SHOWN_MAX // 2 + 2,
        "lines": 0,
        "acked_bytes": 10 * (SOURCES_SHOWN_MAX // 2 + 2),
        "backlog_bytes": sum(row["backlog_bytes"] for row in many["sources"] if row["host"] == "h1")
        + 3,
        "missing_bytes": 0,
        "on_the_way_bytes": SOURCES_SHOWN_MAX // 2 + 2,
        "unlisted_waiting_s": 60.0,
    }
    assert many["hosts_left_out"] == 0


@pytest.mark.parametrize("name", ["/log", "\x01" * 4096])
def test_an_answer_fits_into_a_message(name: str) -> None:
    """However long the names are, and however many the hosts."""
    rows = [source(f"h{at}", f"{name}{at}") for at in range(3 * HOSTS_SHOWN_MAX)]

    answer = answer_of(*rows)

    assert answer["sources"]
    assert len(answer["by_host"]) + answer["hosts_left_out"] == 3 * HOSTS_SHOWN_MAX
    assert answer["by_host"]
    assert json.dumps(answer)
