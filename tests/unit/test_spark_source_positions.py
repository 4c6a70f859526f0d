"""Positions in streams: what becomes of them, and how a batch and its tasks are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.streamstate import StreamState, Verdict, judge
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.offsets import Position, check_streams, decode, encode, loss_sentence
from logpipeline_spark.source.planning import Backlog, batch_ends, is_early, split

CREATED = "2026-11-21T10:00:00.123456789Z"
STATE = StreamState(CREATED, first=10, last=1000, messages=991, bytes=99_100, last_time_ns=9)


def at(sequence: int, **changes: Any) -> Position:
    """Return a position of the stream."""
    fields: dict[str, Any] = {
        "created": CREATED,
        "rollbacks": 0,
        "time_ns": 7,
        "after": 1,
    } | changes
    return Position(sequence=sequence, **fields)


@pytest.mark.parametrize(
    ("position", "found", "verdict"),
    [
        (at(500), 7, Verdict.GOOD),
        (at(500), None, Verdict.GOOD),
        (at(500), 8, Verdict.ROLLED_BACK),
        (at(500, time_ns=0), 8, Verdict.GOOD),
        (at(1000), 7, Verdict.GOOD),
        (at(1001), None, Verdict.ROLLED_BACK),
        (at(500, created="2026-11-20T10:00:00Z"), 7, Verdict.RECREATED),
        (at(9), None, Verdict.GOOD),
        (at(8), None, Verdict.PURGED),
    ],
)
def test_a_position_is_judged(position: Position, found: int | None, verdict: Verdict) -> None:
    """By the stream's creation, its ends, and the time of the message at the sequence."""
    assert judge(position, STATE, found, needs_all=True) is verdict


def test_what_is_lost_is_one_sentence_that_says_what_to_do() -> None:
    """For each verdict."""
    for verdict in (Verdict.ROLLED_BACK, Verdict.RECREATED, Verdict.PURGED):
        text = loss_sentence("LOGS_0", verdict, at(5), STATE)
        assert text.startswith("stream LOGS_0")
        assert "set failOnDataLoss to false" in text


def test_an_incarnation_names_a_life_of_a_stream() -> None:
    """As it stands in names of files."""
    assert at(5, rollbacks=2).incarnation == "18ea0717c4880d15r2"


def test_offsets_survive_the_checkpoint() -> None:
    """JSON, and a start that is equal to no end."""
    known = {"LOGS_1": at(5), "LOGS_0": at(6)}
    text = json.dumps(encode(known))

    assert decode(json.loads(text)) == known
    assert encode(known, is_start=True) != encode(known)
    assert decode(encode(known, is_start=True)) == known


@pytest.mark.parametrize("offset", [{}, {"version": 2, "streams": {}}, {"version": 1}, []])
def test_an_unknown_offset_is_refused(offset: Any) -> None:
    """Never guessed."""
    with pytest.raises(Refused, match="cannot read"):
        decode(offset)


def test_a_checkpoint_of_other_streams_is_refused() -> None:
    """More of them, or fewer."""
    for streams in (("LOGS_0",), ("LOGS_0", "LOGS_1", "LOGS_2")):
        with pytest.raises(Refused, match="the checkpoint was made for"):
            check_streams({"LOGS_0": at(1), "LOGS_1": at(1)}, streams)


BACKLOGS = st.dictionaries(
    st.sampled_from(["A", "B", "C"]),
    st.builds(
        lambda first, count, size: Backlog(first, first + count - 1, size),
        st.integers(1, 50),
        st.integers(0, 10_000),
        st.integers(1, 100_000),
    ),
)


@given(BACKLOGS, st.integers(1, 10**9))
def test_a_batch_moves_on_and_stays_near_its_limit(
    backlogs: dict[str, Backlog], bytes_max: int
) -> None:
    """Each stream that has something gets at least one message, and nobody more than there is."""
    chosen = batch_ends(backlogs, bytes_max)

    taken = {name: chosen[name] - b.first + 1 for name, b in backlogs.items()}
    assert all(0 <= taken[name] <= b.count for name, b in backlogs.items())
    assert all(taken[name] >= 1 for name, b in backlogs.items() if b.count)
    over = sum(count * backlogs[name].message_bytes for name, count in taken.items()) - bytes_max
    assert over <= sum(b.message_bytes for b in backlogs.values())
    lasts = {name: b.first + b.count - 1 for name, b in backlogs.items()}
    assert batch_ends(backlogs, None) == lasts


@given(BACKLOGS, st.integers(1, 10**4), st.integers(1, 10**9))
def test_a_batch_stays_near_its_number_of_messages(
    backlogs: dict[str, Backlog], count_max: int, bytes_max: int
) -> None:
    """Of two limits the stricter one holds, as if it were the only one."""
    chosen = batch_ends(backlogs, None, count_max)

    taken = {name: chosen[name] - b.first + 1 for name, b in backlogs.items()}
    assert sum(taken.values()) <= count_max + len(backlogs)
    assert all(taken[name] >= 1 for name, b in backlogs.items() if b.count)
    both, by_bytes = batch_ends(backlogs, bytes_max, count_max), batch_ends(backlogs, bytes_max)
    assert both in (chosen, by_bytes)
    assert all(both[name] <= min(chosen[name], by_bytes[name]) for name in backlogs)


@pytest.mark.parametrize(
    ("count_min", "is_overdue", "expected"),
    [(15, False, False), (16, False, True), (16, True, False)],
)
def test_a_batch_waits_for_its_messages_until_it_is_overdue(
    count_min: int, is_overdue: bool, expected: bool
) -> None:
    """Those of all streams together."""
    backlogs = {"A": Backlog(1, 10, 1), "B": Backlog(6, 10, 1), "C": Backlog(4, 3, 1)}

    assert is_early(backlogs, count_min=count_min, is_overdue=is_overdue) is expected


@given(BACKLOGS, st.integers(1, 40), st.integers(1, 10**8))
def test_tasks_cover_a_batch_once(
    backlogs: dict[str, Backlog], tasks_min: int, task_bytes_max: int
) -> None:
    """Contiguous, none empty, as many as are asked for where there are so many messages."""
    tasks = split(backlogs, tasks_min=tasks_min, task_bytes_max=task_bytes_max)

    read = {name: [n for s, a, b in tasks if s == name for n in range(a, b + 1)] for name in "ABC"}
    for name, backlog in backlogs.items():
        assert read[name] == list(range(backlog.first, backlog.last + 1))
    assert all(first <= last for _, first, last in tasks)
    assert len(tasks) >= min(tasks_min, min((b.count for b in backlogs.values()), default=0))
    assert tasks == split(backlogs, tasks_min=tasks_min, task_bytes_max=task_bytes_max)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [1]), (10, [10]), (11, [5, 6]), (40, [10, 10, 10, 10])]
)
def test_what_is_less_than_a_task_is_worth_is_not_split(count: int, expected: list[int]) -> None:
    """Of one stream with messages of ten bytes, for tasks of a hundred bytes and four at once."""
    tasks = split({"A": Backlog(1, count, 10)}, tasks_min=4, task_bytes_min=100)

    assert [last - first + 1 for _, first, last in tasks] == expected
