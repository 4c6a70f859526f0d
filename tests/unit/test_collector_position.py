"""A stream that went back is read again from the newest place that it still has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, Verdict, state_of
from logpipeline_collector import stream_position
from logpipeline_collector.config import DeliverPolicy
from logpipeline_collector.stream_position import (
    MARKS_MAX,
    Marks,
    StreamMissing,
    Verified,
    first_position,
    going_on,
    gone_back,
    is_common,
    load_marks,
    save_marks,
    still_passed,
    verify,
)
from logpipeline_collector.stream_reader import ConsumerName

MONDAY, TUESDAY = "2026-11-23T10:00:00Z", "2026-11-24T10:00:00Z"


def at(sequence: int, created: str = MONDAY) -> StreamPosition:
    """Return a position in the stream that was made then."""
    return StreamPosition(created, sequence, sequence * 10)


def marks_at(*sequences: int) -> Marks:
    """Return these marks."""
    return Marks(map(at, sequences))


def sequences_of(marks: Marks) -> list[int]:
    """Return where *marks* are, the oldest first."""
    return [position.sequence for position in reversed(marks.newest_first())]


def test_marks_rise() -> None:
    """What a stream has again behind a roll-back is marked anew."""
    marks = marks_at(10, 20, 30)
    marks.add(at(30))
    same = sequences_of(marks)
    marks.add(at(15))
    back = sequences_of(marks)
    marks.add(at(40, TUESDAY))

    assert (same, back) == ([10, 20, 30], [10, 15])
    assert marks.newest_first() == [at(40, TUESDAY)]
    marks.add(StreamPosition("", 0, 0))
    assert len(marks) == 0


def test_there_are_so_many_marks_and_no_more() -> None:
    """The newest and the oldest one stay."""
    marks = marks_at(*range(1, MARKS_MAX + 1))
    full = sequences_of(marks)
    marks.add(at(MARKS_MAX + 1))

    assert full == list(range(1, MARKS_MAX + 1))
    assert len(marks) == MARKS_MAX
    assert (sequences_of(marks)[0], sequences_of(marks)[-1]) == (1, MARKS_MAX + 1)


@pytest.mark.parametrize(
    ("sequences", "left"),
    [
        ([10, 20, 30, 100, 110], [10, 30, 100, 110]),
        ([10, 90, 95, 100, 200], [10, 90, 100, 200]),
        ([10, 20, 60, 70, 71], [10, 60, 70, 71]),
    ],
)
def test_the_mark_goes_that_costs_least(
    monkeypatch: pytest.MonkeyPatch, sequences: list[int], left: list[int]
) -> None:
    """What is read again without it is least, measured by how far back it lies."""
    monkeypatch.setattr(stream_position, "MARKS_MAX", 4)

    assert sequences_of(marks_at(*sequences)) == left


def test_marks_are_kept_on_disk(tmp_path: Path) -> None:
    """Without a file there are none."""
    path = tmp_path / "marks"
    none = load_marks(path)
    save_marks(path, marks_at(10, 20).encode())

    assert len(none) == 0
    assert load_marks(path).newest_first() == [at(20), at(10)]
    assert json.loads(json.dumps(Marks().encode())) == {"created": "", "marks": []}
    many = {"created": MONDAY, "marks": [[n, n * 10] for n in range(1, 2 * MARKS_MAX)]}
    assert sequences_of(Marks.decode(many)) == list(range(MARKS_MAX, 2 * MARKS_MAX))


@pytest.mark.parametrize(
    "data", [None, {}, {"created": MONDAY, "marks": [["x", 1]]}, {"marks": []}]
)
def test_what_are_no_marks_is_refused_and_counts_as_none(
    tmp_path: Path, data: object, caplog: pytest.LogCaptureFixture
) -> None:
    """More is read again then, and it is said."""
    with pytest.raises(ValueError, match="not marks"):
        Marks.decode(data)
    path = tmp_path / "marks"
    path.write_bytes(b"nonsense")

    assert len(load_marks(path)) == 0
    assert "marks cannot be read" in caplog.text


STREAM = StreamState(MONDAY, 20, 50)


@pytest.mark.parametrize(
    ("mark", "found_time_ns", "is_it"),
    [
        pytest.param(at(30), 300, True, id="its message is there"),
        pytest.param(at(50), 500, True, id="it is the last one"),
        pytest.param(at(30), 301, False, id="another message is there"),
        pytest.param(at(30), None, False, id="its message was removed"),
        pytest.param(at(19), None, True, id="before the first one"),
        pytest.param(at(20), None, False, id="the first one is another"),
        pytest.param(at(51), 510, False, id="behind the last one"),
        pytest.param(at(30, TUESDAY), 300, False, id="another stream"),
    ],
)
def test_a_mark_is_common_where_the_stream_still_is_the_same(
    mark: StreamPosition, found_time_ns: int | None, is_it: bool
) -> None:
    """What lies before the first message cannot be compared, nor read again."""
    assert is_common(mark, STREAM, found_time_ns) is is_it


def test_what_was_read_before_a_roll_back_is_known_until_its_time_is_passed() -> None:
    """Nothing is committed before."""
    back = gone_back(Verdict.ROLLED_BACK, at(60), STREAM, at(40))

    assert back == Verified(Verdict.ROLLED_BACK, at(40), STREAM, 600, 50)
    assert [back.is_known(time_ns) for time_ns in (600, 601)] == [True, False]
    assert not back.is_settled(at(49), pending=1)
    assert back.is_settled(at(50), pending=1)
    assert back.is_settled(at(49), pending=0)
    assert back.is_settled(StreamPosition(MONDAY, 45, 601), pending=1)
    assert not back.is_settled(StreamPosition(MONDAY, 45, 600), pending=1)


def test_without_a_common_mark_all_is_read_again() -> None:
    """Also where nothing was lost but the stream was made anew."""
    anew = gone_back(Verdict.RECREATED, at(60), STREAM, None)

    assert anew.position == StreamPosition(MONDAY, 0, 0)


def test_where_nothing_was_lost_reading_goes_on() -> None:
    """The stream's own time of creation may be unknown before."""
    on = going_on(StreamPosition("", 40, 400), STREAM)

    assert on == Verified(Verdict.GOOD, at(40), STREAM)


class OneStream:
    """A server with one stream, or with none where it is not *there*."""

    def __init__(self, first: int, last: int, *, created: str = MONDAY, there: bool = True) -> None:
        self.first, self.last, self.created, self.there = first, last, created, there
        self.removed: set[int] = set()
        self.offset_ns = 0
        self.consumers: list[dict[str, Any]] = []

    @property
    def js(self) -> JetStream:
        """Itself, as what it stands for."""
        return cast(JetStream, self)

    async def stream_info(self, _name: str) -> dict[str, Any] | None:
        state: dict[str, Any] = {"first_seq": self.first, "last_seq": self.last}
        state |= {"messages": 1, "bytes": 1, "last_ts": "2026-11-24T10:00:00Z"}
        return {"created": self.created, "config": {}, "state": state} if self.there else None

    async def message(self, _name: str, sequence: int) -> StoredMessage | None:
        if sequence in self.removed or not self.first <= sequence <= self.last:
            return None
        return StoredMessage("logs.p0.a", sequence, sequence * 10 + self.offset_ns, b"", b"")

    async def consumer_create(
        self, _stream: str, config: dict[str, Any], *, action: str
    ) -> dict[str, Any]:
        # It lives for one answer: in memory, and on one server.
        assert (config["mem_storage"], config["num_replicas"]) == (True, 1)
        self.consumers.append(config)
        return {"delivered": {"stream_seq": 41}}

    async def consumer_delete(self, _stream: str, name: str) -> None:
        self.consumers = [each for each in self.consumers if each["name"] != name]


async def test_reading_goes_on_in_a_stream_that_has_what_was_read() -> None:
    """No mark is looked at."""
    found = await verify(OneStream(20, 50).js, "LOGS_0", at(40), marks_at(30))

    assert (found.verdict, found.position) == (Verdict.GOOD, at(40))


async def test_a_stream_that_lost_its_tail_is_read_from_the_newest_mark_that_it_has() -> None:
    """Not from one of another stream, nor from one whose message is another now."""
    server = OneStream(20, 50)
    server.removed = {45}
    found = await verify(server.js, "LOGS_0", at(60), marks_at(30, 44, 45, 55))
    foreign = Marks(iter([at(30, TUESDAY)]))
    nothing = await verify(server.js, "LOGS_0", at(60), foreign)

    assert (found.verdict, found.position) == (Verdict.ROLLED_BACK, at(44))
    assert (found.known_until_ns, found.settled_at) == (600, 50)
    assert nothing.position == StreamPosition(MONDAY, 0, 0)


async def test_what_was_passed_counts_while_the_stream_is_the_same() -> None:
    """Elsewhere it is read again."""
    server = OneStream(20, 50)
    info = await server.stream_info("LOGS")
    assert info is not None
    stream = state_of(info)
    same = await still_passed(server.js, "LOGS", stream, at(40))
    server.offset_ns = 1
    other = await still_passed(server.js, "LOGS", stream, at(40))

    assert (same, other) == (at(40), None)
    assert await still_passed(server.js, "LOGS", stream, None) is None


NAME = ConsumerName("main", 1, 1)


@pytest.mark.parametrize(
    ("policy", "position"),
    [
        pytest.param("all", StreamPosition("", 0, 0), id="all"),
        pytest.param("new", at(50), id="new"),
        pytest.param("byStartTime", at(41), id="by time"),
    ],
)
async def test_a_group_begins_where_it_wishes(
    policy: DeliverPolicy, position: StreamPosition
) -> None:
    """No consumer is left behind."""
    server = OneStream(20, 50)
    start = "2026-11-24T09:00:00Z" if policy == "byStartTime" else None
    found = await first_position(server.js, "LOGS_0", NAME, policy=policy, start_time=start)

    assert found == position
    assert server.consumers == []


async def test_a_group_begins_where_nothing_is_stored_any_more() -> None:
    """The message there is gone, and its time is not known."""
    server = OneStream(51, 50)
    found = await first_position(server.js, "LOGS_0", NAME, policy="new", start_time=None)

    assert found == StreamPosition(MONDAY, 50, 0)


async def test_a_stream_that_does_not_exist_is_named() -> None:
    """With what to do."""
    server = OneStream(0, 0, there=False)
    with pytest.raises(StreamMissing, match="LOGS_0 does not exist; run `logpipeline apply`"):
        await verify(server.js, "LOGS_0", at(40), Marks())
    with pytest.raises(StreamMissing):
        await first_position(server.js, "LOGS_0", NAME, policy="new", start_time=None)
