"""An answer to the question for the status is read whole, or not at all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from logpipeline.nats.session import RawMessage
from logpipeline_cli import target
from logpipeline_cli.component_answers import is_readable, name_in

SHIPPER: dict[str, Any] = {
    "component": "shipper",
    "name": "node-a",
    "ready": None,
    "lines": 7,
    "unreadable_total": 1,
    "unreadable": [{"path": "/var/log/x", "reason": "EACCES"}],
    "sources": [{"host": "node-a", "source": "/var/log/\udcff", "lines": 7, "position": ["g", 9]}],
}
SUMS = {
    "sources": 5, "lines": 0, "acked_bytes": 0, "backlog_bytes": 0, "missing_bytes": 0,
    "on_the_way_bytes": 0, "unlisted_waiting_s": 0.5,
}  # fmt: skip
SHIPPER["by_host"] = [{"host": "node-a", **SUMS}]
LOSS = {"generation": "g", "start": 0, "end": 9, "cause": "removed", "time_ns": 1}
COLLECTOR: dict[str, Any] = {
    "component": "collector",
    "group": "main",
    "member": "collector-0",
    "partitions": [
        {"partition": 0, "problem": "not taken yet"},
        {
            "partition": 1,
            "problem": None,
            "epoch": 3,
            "lag_seconds": 0.5,
            "pending_bytes": 0,
            "uncommitted_bytes": 0,
            "missing_bytes": 4,
            "missing": [{"host": "node-a", "source": "/x", "bytes": 4}],
            "losses": [{"host": "node-a", "source": "/x", **LOSS}],
            "gone_folders": [{"after": 1, "end": 5, "again_from": 0, "member": "c"}],
        },
    ],
}


def changed(answer: dict[str, Any], *path: str | int, to: Any = None) -> dict[str, Any]:
    """Return a copy whose field at *path* is *to*, or is not there."""
    made = copy.deepcopy(answer)
    *way, last = path
    inner: Any = made
    for each in way:
        inner = inner[each]
    if to is None:
        del inner[last]
    else:
        inner[last] = to
    return made


def test_what_components_answer_is_read() -> None:
    """Fields that are not known here may be anything; the name of a file may be no UTF-8."""
    assert is_readable("shipper", SHIPPER | {"new": [None]})
    assert is_readable("collector", COLLECTOR | {"new": {}})


@pytest.mark.parametrize(
    "answer",
    [
        changed(SHIPPER, "name"),
        changed(SHIPPER, "lines", to="seven"),
        changed(SHIPPER, "lines", to=float("nan")),
        changed(SHIPPER, "unreadable"),
        changed(SHIPPER, "sources", to={"host": "node-a"}),
        changed(SHIPPER, "sources", 0, "host"),
        changed(SHIPPER, "sources", 0, "host", to="no host*"),
        changed(SHIPPER, "sources", 0, "source", to="\ud800"),
        changed(SHIPPER, "sources", 0, "position", to=["g"]),
        changed(SHIPPER, "by_host", 0, "sources"),
        changed(SHIPPER, "by_host", 0, "host", to="no host*"),
        changed(COLLECTOR, "member"),
        changed(COLLECTOR, "partitions", to=3),
        changed(COLLECTOR, "partitions", 0, "problem"),
        changed(COLLECTOR, "partitions", 0, "partition", to=True),
        changed(COLLECTOR, "partitions", 1, "lag_seconds"),
        changed(COLLECTOR, "partitions", 1, "losses", 0, "time_ns"),
        changed(COLLECTOR, "partitions", 1, "losses_left_out", to="some"),
        changed(COLLECTOR, "partitions", 1, "missing", 0, "host", to=""),
        changed(COLLECTOR, "partitions", 1, "gone_folders", 0, "end"),
    ],
    ids=lambda answer: answer["component"],
)
def test_what_lacks_a_field_or_holds_another_thing_is_left_out(answer: dict[str, Any]) -> None:
    """Else it would end whoever looks, at the place that reads the field."""
    assert not is_readable(answer["component"], answer)


def test_a_component_whose_answer_is_left_out_is_named() -> None:
    """By what it calls itself, as far as that can be shown."""
    assert name_in("shipper", SHIPPER) == "node-a"
    assert name_in("shipper", {"name": "\x1b[31m" + "x" * 1000}).startswith("\\x1b[31mxx")
    assert name_in("collector", {"member": 3}) == "a collector"


async def test_an_answer_that_is_no_json_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whom it is, is not known; that its losses are not shown, is. A server's own word that no
    component listens is no answer.
    """

    async def gather(connection: Any, subjects: Any, question: bytes, keep: Any) -> None:
        for data in (json.dumps(SHIPPER).encode(), b'{"lines":' + b"9" * 30 + b"}", b""):
            keep(RawMessage(b"inbox", b"", b"", data))

    monkeypatch.setattr(target, "gather", gather)
    connection: Any = None
    answers = await target.ask(connection, "_lp.logs")

    assert answers == {
        "shipper": [SHIPPER],
        "collector": [],
        "unreadable": [{"name": "a shipper or collector"}],
    }
