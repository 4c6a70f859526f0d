"""Trimming frees what everybody has done with, oldest first, and never more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.fake_bucket import FakeBucket
from logpipeline.plan.model import FoundStream
from logpipeline.plan.trim import (
    WARN_FILL,
    Decision,
    Levels,
    Table,
    Trimmed,
    _note_missed,
    _Warnings,
    decide,
    durable_floors,
    fill_of,
    group_floor,
    groups_of,
    missed_by,
    table_keys,
    table_progress,
)
from logpipeline.records import EpochRecord, StreamPosition
from logpipeline.spec import parse
from logpipeline.spec.streams import Stream
from logpipeline.tables.progress import Missed, missed_key_of, table_key

HALF = Levels(above=0.5, skip_tables=0.8)


def record(*, sequence: int = 50, snapshot_at: int = 40, **fields: Any) -> EpochRecord:
    """The record of a partition that is committed up to *sequence*."""
    given: dict[str, Any] = {"epoch": 1, "owner": "c-0", "incarnation": "x", "assignment": 1}
    return EpochRecord(
        **{
            **given,
            "position": StreamPosition("then", sequence, 7),
            "snapshot": 3,
            "snapshot_at": snapshot_at,
            **fields,
        }
    )


def floor(of: EpochRecord | None, **seen: Any) -> int:
    """The record's floor on a stream that is as the record says, but for *seen*."""
    return group_floor(of, **{"created": "then", "last_sequence": 100, "time_ns": 7, **seen})


def test_nothing_is_trimmed_up_to_the_level() -> None:
    """A stream that is not fuller than it should be is left alone, whatever was collected."""
    decision = decide(
        fill=0.5, levels=HALF, first_sequence=1, last_sequence=100, floors={"group main": 100}
    )

    assert decision == Decision()


def test_a_full_stream_is_trimmed_below_the_level_and_no_further() -> None:
    """Enough goes that trimming does not begin again at once; the rest stays for re-reading."""
    decision = decide(
        fill=1.0, levels=HALF, first_sequence=1, last_sequence=100, floors={"group main": 100}
    )

    assert decision == Decision(below=61)


def test_what_a_group_left_out_at_its_beginning_may_go_at_once() -> None:
    """Before its first commit and snapshot: it will never ask for it. What it wants stays."""
    begun = record(sequence=50, snapshot_at=0, snapshot=0, begun=50)
    further = record(sequence=80, snapshot_at=0, snapshot=0, begun=50)

    assert (floor(begun), floor(further)) == (49, 50)


def test_what_a_group_passed_may_go_where_a_successor_needs_none_of_it() -> None:
    """All of the partition is in the snapshot, or there was nothing; the rest is others'. What no
    longer is the same message, or is of another stream, frees nothing more.
    """
    passed = StreamPosition("then", 80, 9)
    known = record(sequence=50, snapshot_at=50, passed=passed)
    behind = record(sequence=50, snapshot_at=40, passed=passed)
    nothing = record(snapshot=0, position=StreamPosition("", 0, 0), passed=passed)

    assert (floor(known, passed_time_ns=9), floor(nothing, passed_time_ns=9)) == (79, 79)
    assert floor(behind, passed_time_ns=9) == 40
    assert (floor(known, passed_time_ns=8), floor(known, created="later")) == (49, 0)
    assert floor(known, passed_time_ns=9, last_sequence=80) == 79
    assert floor(known, passed_time_ns=9, last_sequence=79) == 49


@given(
    fill=st.floats(0, 1.5),
    above=st.floats(0, 1),
    first=st.integers(1, 1000),
    count=st.integers(0, 1000),
    floors=st.dictionaries(st.text(max_size=3), st.integers(0, 3000), max_size=4),
)
def test_nothing_beyond_any_readers_floor_is_ever_trimmed(
    fill: float, above: float, first: int, count: int, floors: dict[str, int]
) -> None:
    """Whatever the numbers, each message that some reader still needs stays."""
    decision = decide(
        fill=fill,
        levels=Levels(above=above),
        first_sequence=first,
        last_sequence=first + count - 1,
        floors=floors,
    )

    assert decision.below <= min(floors.values(), default=-1) + 1


def test_the_reader_that_permits_no_more_is_named() -> None:
    """Whoever wonders why a stream stays full is told which reader to look at."""
    decision = decide(
        fill=1.0,
        levels=HALF,
        first_sequence=1,
        last_sequence=100,
        floors={"group main": 100, "consumer audit": 10},
    )

    assert decision == Decision(below=11, held_by="consumer audit")


def of_table(
    fill: float, floor: int, *, group: int = 100, skip: float = 0.8, first: int = 1
) -> Decision:
    """The decision on a stream that holds the messages *first* to 100. Its table has read up to
    *floor*, and its group up to *group*.
    """
    return decide(
        fill=fill,
        levels=Levels(above=0.5, skip_tables=skip),
        first_sequence=first,
        last_sequence=100,
        floors={"group main": group},
        tables={"table team/prod": floor},
    )


def test_a_table_is_waited_for_up_to_its_level_and_named() -> None:
    """What it has not read stays, as long as the stream has room for more."""
    assert of_table(0.8, 0) == Decision(held_by="table team/prod")
    assert of_table(0.8, 20) == Decision(below=21, held_by="table team/prod")


def test_above_its_level_a_table_is_waited_for_no_more() -> None:
    """The stream is brought down to that level and no further: the newest stay for the table."""
    assert of_table(1.0, 0) == Decision(below=21, held_by="table team/prod")
    assert of_table(1.0, 50) == Decision(below=51, held_by="table team/prod")
    assert of_table(1.0, 90) == Decision(below=61)


def test_whoever_chose_to_wait_for_the_table_waits() -> None:
    """At 100 nothing of it is purged unread, however full the stream is."""
    assert of_table(1.0, 0, skip=1.0) == Decision(held_by="table team/prod")
    assert of_table(1.2, 0, skip=1.0) == Decision(held_by="table team/prod")


def test_at_its_level_a_table_is_still_who_holds_the_stream() -> None:
    """A group that is behind as well is not named for it."""
    assert of_table(0.8, 5, group=10, first=50) == Decision(held_by="table team/prod")


def test_what_a_group_has_not_read_stays_also_where_a_table_is_skipped() -> None:
    """And the group is named, since it is what the stream waits for."""
    assert of_table(1.0, 0, group=7) == Decision(below=8, held_by="group main")
    assert of_table(1.0, 0, group=0) == Decision(held_by="group main")


@given(
    fill=st.floats(0, 1.5),
    above=st.integers(1, 99),
    skip=st.integers(1, 99),
    group=st.integers(0, 3000),
    table=st.integers(0, 3000),
    count=st.integers(1, 1000),
)
def test_no_table_ever_keeps_a_stream_full(
    fill: float, above: int, skip: int, group: int, table: int, count: int
) -> None:
    """With tables, as much is free above their level as without them; and they see what stays."""
    levels = Levels.of(Stream(trim_above=above, skip_tables_above=skip))
    numbers: Any = {
        "fill": fill, "levels": levels, "first_sequence": 1, "last_sequence": count,
        "floors": {"group main": group},
    }  # fmt: skip
    needed = count * (1 - levels.skip_tables / fill) if fill > levels.skip_tables else 0
    alone, beside = decide(**numbers), decide(**numbers, tables={"table x": table})

    assert beside.below <= alone.below
    assert beside.below - 1 >= min(needed, group, alone.below - 1)
    assert beside.below - 1 <= max(table, needed + 1)


def test_the_message_at_the_committed_position_stays() -> None:
    """By its time the next owner sees that the server has not rolled the stream back."""
    assert floor(record(sequence=50, snapshot_at=50)) == 49


def test_what_a_successor_reads_after_the_snapshot_stays() -> None:
    """An owner with another folder reads the headers from the snapshot to the position."""
    assert floor(record(sequence=50, snapshot_at=40)) == 40
    assert floor(record(snapshot=0)) == 0


def test_a_position_that_is_in_doubt_permits_nothing() -> None:
    """Another stream of that name, reused sequences, a rolled-back tail: keep everything."""
    assert floor(None) == 0
    assert floor(record(), created="later") == 0
    assert floor(record(), time_ns=8) == 0
    assert floor(record(), time_ns=None) == 0
    assert floor(record(sequence=101, snapshot_at=101)) == 0
    assert floor(record(sequence=100, snapshot_at=100)) == 99


def consumer(name: str, **fields: Any) -> dict[str, Any]:
    """A consumer as the server lists it, with 5 messages before it."""
    listed = {
        "name": name,
        "config": {"durable_name": name, "ack_policy": "explicit"},
        "delivered": {"stream_seq": 30},
        "ack_floor": {"stream_seq": 20},
        "num_pending": 5,
        "num_ack_pending": 10,
    }
    return {**listed, **fields}


def test_a_durable_keeps_what_it_has_not_acknowledged() -> None:
    """A message that was delivered and not acknowledged may be asked for again."""
    even = consumer("a", num_pending=10)

    assert durable_floors([consumer("a")], last_sequence=100) == {"consumer a": 20}
    assert durable_floors([even], last_sequence=100) == {"consumer a": 20}


def test_a_durable_without_acknowledgements_has_done_with_what_it_was_sent() -> None:
    """It never gets a message twice."""
    plain = consumer("a", config={"durable_name": "a", "ack_policy": "none"})

    idle = {**plain, "num_pending": 0}

    assert durable_floors([plain], last_sequence=100) == {"consumer a": 30}
    assert durable_floors([idle], last_sequence=100) == {"consumer a": 100}


def test_a_durable_that_waits_for_nothing_holds_nothing_back() -> None:
    """A filter that matches little leaves the consumer's own figures far behind."""
    idle = consumer("a", num_pending=0, num_ack_pending=0)
    untold = {key: idle[key] for key in ("name", "config", "delivered", "ack_floor")}
    unacked = consumer("a", num_pending=0, num_ack_pending=1)

    assert durable_floors([idle], last_sequence=100) == {"consumer a": 100}
    assert durable_floors([untold], last_sequence=100) == {"consumer a": 100}
    assert durable_floors([unacked], last_sequence=100) == {"consumer a": 20}
    assert durable_floors([{**unacked, "ack_floor": {}}], last_sequence=100) == {"consumer a": 0}


def test_a_reader_that_will_vanish_by_itself_holds_nothing_back() -> None:
    """Only durables count: the collectors' own consumers are covered by their records."""
    assert durable_floors([consumer("a", config={"ack_policy": "none"})], last_sequence=1) == {}


def test_groups_are_known_from_their_records_and_assignments() -> None:
    """A group that was assigned but never committed counts: it has still everything to read."""
    keys = ["epoch.main.0", "epoch.main.1", "assignment.other", "member.third.c-0"]

    assert groups_of(keys) == {"main", "other"}
    assert groups_of(["epoch..0", "assignment."]) == set()


def test_the_fuller_of_two_limits_counts_and_no_limit_is_never_full() -> None:
    """Bytes and messages are both limits; a stream without any needs no room."""
    state = {"bytes": 50, "messages": 9}

    assert fill_of({"max_bytes": 100, "max_msgs": 10}, state) == 0.9
    assert fill_of({"max_bytes": -1, "max_msgs": -1}, state) == 0.0
    assert fill_of({"max_bytes": 100, "max_msgs": -1}, state) == 0.5
    assert fill_of({"max_bytes": 1}, {"bytes": 1}) == 1.0
    assert (fill_of({}, state), fill_of({"max_msgs": 0}, state)) == (0.0, 0.0)
    assert fill_of({"max_bytes": 100}, {}) == 0.0


def test_an_empty_stream_is_not_trimmed() -> None:
    """Whoever reads it; and of one with one message that is collected, that goes."""
    numbers: Any = {"fill": 1.0, "levels": HALF, "first_sequence": 5}

    assert decide(**numbers, last_sequence=4, floors={}) == Decision()
    assert decide(**numbers, last_sequence=5, floors={"group main": 5}) == Decision(below=6)
    nobody = decide(**numbers, last_sequence=5, floors={})
    assert nobody == Decision(held_by="no group of collectors has begun")


def test_a_stream_that_is_almost_full_and_cannot_be_trimmed_is_stuck() -> None:
    """Not while something of it goes, or there is room."""
    held = Trimmed(stream="LOGS_0", fill=WARN_FILL, below=0, messages=0, held_by="group main")

    assert held.is_stuck
    assert not replace(held, below=2).is_stuck
    assert not replace(held, fill=WARN_FILL - 0.01).is_stuck


def test_each_warning_is_said_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that cannot be trimmed, and one of which a table missed something."""
    stuck = Trimmed(stream="LOGS_0", fill=1.0, below=0, messages=0, held_by="group main")
    skipped = Trimmed(
        stream="LOGS_1", fill=1.0, below=9, messages=8, held_by="", missed_by=("table a/b",)
    )
    warnings = _Warnings()
    said = []
    for trimmed in ([stuck], [stuck, skipped], [skipped], [stuck], [], [skipped]):
        caplog.clear()
        warnings.log(trimmed)
        said.append([vars(record)["stream"] for record in caplog.records])

    assert said == [["LOGS_0"], ["LOGS_1"], [], ["LOGS_0"], [], ["LOGS_1"]]


def test_a_stream_that_is_trimmed_now_and_then_keeps_its_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While it stays above its level."""
    skipped = Trimmed(
        stream="LOGS_1", fill=1.0, below=9, messages=8, held_by="", missed_by=("table a/b",)
    )
    warnings = _Warnings()
    for trimmed in (skipped, replace(skipped, missed_by=()), skipped):
        warnings.log([trimmed])

    assert len(caplog.records) == 1


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_tables_of_other_pipelines_are_waited_for_as_well(is_enabled: bool) -> None:
    """The pipeline's own one also where it has not begun, and not where it is switched off."""
    spec = {"subject": "logs", "table": {"enabled": is_enabled}}
    pipeline = parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "logs"},
            "spec": spec,
        }
    )
    ours, others = table_key(pipeline.namespace, "logs"), table_key("team", "prod")

    assert table_keys({others, "epoch.main.0"}, pipeline) == {
        others,
        *([ours] if is_enabled else []),
    }
    assert table_keys({ours}, pipeline) == ({ours} if is_enabled else set())


@pytest.mark.parametrize(
    ("done", "unread"),
    [(0, range(5, 10)), (4, range(5, 10)), (5, range(6, 10)), (8, range(9, 10)), (9, range(0))],
)
def test_a_table_misses_what_comes_after_its_last_message(done: int, unread: range) -> None:
    """Messages 5 to 9 are purged, and *done* is the last one that the table has read."""
    assert Table(table_key("team", "prod"), 0, done).unread(range(5, 10)) == unread


async def test_what_a_table_misses_is_written_down_from_where_it_had_read() -> None:
    """A record that cannot be read counts as none."""
    bucket, key = FakeBucket(), table_key("team", "prod")
    stream = FoundStream(
        config={"name": "LOGS_0"}, state={"first_seq": 5, "last_seq": 20}, created="then", now=""
    )
    assert await missed_by(bucket.bucket, key) == Missed()
    assert await table_progress(bucket.bucket, key) is None
    await _note_missed(bucket.bucket, stream, Table(key, 0, 2), range(5, 10))
    await _note_missed(bucket.bucket, stream, Table(key, 0, 11), range(12, 15))
    noted = await missed_by(bucket.bucket, missed_key_of(key))
    (first, second) = noted.streams["LOGS_0"]
    bucket.values[key] = (1, b"nonsense")

    assert [(each.created, each.first, each.last) for each in (first, second)] == [
        ("then", 5, 9),
        ("then", 12, 14),
    ]
    assert noted.messages == 8
    assert await missed_by(bucket.bucket, key) == Missed()
    assert await table_progress(bucket.bucket, key) is None
