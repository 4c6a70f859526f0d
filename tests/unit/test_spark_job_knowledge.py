"""What a table knows of sources stays within limits, whatever hosts there are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logpipeline import json_text
from logpipeline.source_room import FORGOTTEN
from logpipeline_spark.job import knowledge as module
from logpipeline_spark.job.knowledge import Knowledge
from logpipeline_spark.job.stream_state import StreamState, learn
from logpipeline_spark.lines.messages import Run, Seen

STREAMS = ("A", "B")


def made() -> Knowledge:
    """The knowledge of two streams of which nothing is known."""
    return Knowledge({name: StreamState() for name in STREAMS})


def let_come(
    knowledge: Knowledge,
    stream: str,
    host: str,
    source: str,
    *,
    generation: int = 0,
    start: int = 0,
) -> None:
    """One byte comes of a source, at *start*."""
    run = Run(host, source, f"{generation:016x}", start, start + 1, 1, 1)
    known = knowledge.states[stream].known
    knowledge.take({stream: learn(known, Seen((run,)))})


def sources_of(knowledge: Knowledge, stream: str, host: str) -> list[str]:
    """What is known of a host in a stream, the one that changed last in the end."""
    return [source for owner, source in knowledge.states[stream].known if owner == host]


def stored(knowledge: Knowledge) -> dict[str, dict[str, object]]:
    """All rows, as a state holds them."""
    return {name: dict(each.all()) for name, each in knowledge.kept().items()}


def test_a_host_with_long_names_takes_the_place_of_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Streams share one limit; what forgotten sources miss stays in the sum."""
    monkeypatch.setattr(module, "SOURCES_BYTES_MAX", 100_000)
    knowledge = made()
    for number in range(5):
        let_come(knowledge, "A", "a", f"/{number}")
    for number in range(50):
        let_come(knowledge, "B", "evil", f"{number}" + "\N{ROCKET}" * 1000, start=7)

    kept = len(sources_of(knowledge, "B", "evil"))
    assert sources_of(knowledge, "A", "a") == [f"/{number}" for number in range(5)]
    assert 0 < kept < 10
    assert (knowledge.take_forgotten(), knowledge.take_forgotten()) == (50 - kept, 0)
    assert knowledge.missing_bytes == 50 * 7
    assert {record.__dict__["host"] for record in caplog.records} == {"evil"}


def test_the_silent_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the host that has the most; what is stored says so, and the next start knows the same."""
    monkeypatch.setattr(module, "SOURCES_MAX", 3)
    knowledge = made()
    let_come(knowledge, "A", "idle", "/old")
    for source in ("/a", "/b", "/a"):
        let_come(knowledge, "B", "busy", source)
    knowledge.kept()
    let_come(knowledge, "B", "busy", "/c", start=3)
    changed = knowledge.kept()

    assert sources_of(knowledge, "A", "idle") == ["/old"]
    assert sources_of(knowledge, "B", "busy") == ["/a", "/c"]
    assert [(json.loads(key)[1], row is None) for key, row in changed["B"].changed.items()] == [
        ("/c", False),
        ("/b", True),
    ]
    assert changed["A"].changed == {}


def test_old_generations_give_way_before_sources_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is rotated all the time takes no other log's place."""
    monkeypatch.setattr(module, "SOURCES_BYTES_MAX", 30_000)
    knowledge = made()
    let_come(knowledge, "A", "a", "/idle")
    for number in range(250):
        let_come(knowledge, "A", "a", "/busy", generation=number)

    assert sources_of(knowledge, "A", "a") == ["/idle", "/busy"]
    assert knowledge.take_forgotten()


def test_what_was_stored_without_limits_is_brought_within_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the next start, and its first commit stores it; what is missing stays in the sum."""
    knowledge = made()
    for number in range(20):
        let_come(knowledge, "A", "a", f"/{number}", start=2)
    rows = stored(knowledge)
    monkeypatch.setattr(module, "SOURCES_MAX", 5)
    again = Knowledge(
        {name: StreamState.of(None, rows[name], where="the test") for name in STREAMS}
    )

    assert sources_of(again, "A", "a") == [f"/{number}" for number in range(15, 20)]
    assert again.missing_bytes == 20 * 2
    assert again.take_forgotten() == 15
    changed = again.kept()["A"].changed
    assert sum(row is None for row in changed.values()) == 15
    rows["A"] |= changed
    left = {key: row for key, row in rows["A"].items() if row is not None}
    state = StreamState.of(None, left, where="the test")
    assert state.known == again.states["A"].known
    assert Knowledge({"A": state}).missing_bytes == 20 * 2
    assert FORGOTTEN in state.known


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 99)), max_size=40))
def test_rows_take_no_more_than_a_state_has_room_for(steps: list[tuple[int, int, int]]) -> None:
    """Whatever characters names have: a state may have four times the bytes of sources."""
    names = ['"' * 200, "\\" * 300, "\x01" * 400, "\N{ROCKET}" * 500]
    knowledge = made()
    for which, generation, start in steps:
        stream = STREAMS[which % 2]
        let_come(knowledge, stream, "h", names[which], generation=generation, start=start)

    assert len(json_text.dump(stored(knowledge))) <= 4 * knowledge._room.bytes + 100
