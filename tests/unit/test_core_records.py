"""Records of the state bucket read back as they were written, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.records import (
    PROGRESS_BYTES_MAX,
    PROGRESS_ROWS_MAX,
    Assignment,
    BadRecord,
    Committed,
    EpochRecord,
    EpochStart,
    Former,
    Named,
    Progress,
    Question,
    Reached,
    StreamPosition,
    Succession,
    answers,
    assign,
    assignment_key,
    epoch_key,
    member_key,
    questions,
)

RECORD = EpochRecord(
    epoch=3,
    owner="collector-0",
    incarnation="abc",
    assignment=2,
    position=StreamPosition("2026-11-21T10:00:00Z", 17, 123),
    rollbacks=1,
    history=(EpochStart(2, 5), EpochStart(3, 9)),
)

FIELDS_OF_OLDER_COLLECTORS = {
    *("epoch", "owner", "incarnation", "assignment", "position", "rollbacks", "released"),
    *("snapshot", "snapshot_at", "history"),
}


def test_an_epoch_record_reads_back() -> None:
    """With its history."""
    assert EpochRecord.decode(RECORD.encode()) == RECORD


def test_keys_are_as_ever() -> None:
    """Components of two versions share a bucket during an update."""
    assert assignment_key("main") == "assignment.main"
    assert epoch_key("main", 3) == "epoch.main.3"
    assert member_key("main", "collector-0") == "member.main.collector-0"


def test_a_record_tells_where_its_group_began() -> None:
    """Only where that is not the beginning: older collectors can read the others."""
    later = replace(RECORD, begun=17, begun_ns=123)

    assert EpochRecord.decode(later.encode()) == later
    assert b"begun" not in RECORD.encode()


def test_a_record_tells_former_folders_beside_what_older_collectors_read() -> None:
    """They refuse a field that they do not know: so what is new travels in a header."""
    end = Reached(StreamPosition("2026-11-21T10:00:00Z", 9, 99), 1)
    former = (Former("collector-1", "abc", 2, None, end), Former("c", "d", 1, end, end))
    record = replace(RECORD, succession=Succession(end, end, former))

    assert RECORD.encode() == record.encode()
    assert record.succession is not None
    assert EpochRecord.decode(record.encode(), record.succession.encode()) == record
    assert set(json.loads(record.encode())) == FIELDS_OF_OLDER_COLLECTORS


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[1,2,3]", "[[],null,[[]]]", "\xff"])
def test_a_succession_that_is_none_is_not_believed(text: str) -> None:
    """As in a record of an older collector: only the sequences of its history are known."""
    assert EpochRecord.decode(RECORD.encode(), text) == RECORD


def test_what_was_reached_is_ordered_by_roll_backs_first() -> None:
    """The same sequence behind a roll-back is another place, and a later one."""
    before, after = Reached(RECORD.position, 0), Reached(RECORD.position, 1)
    unknown = Reached(StreamPosition("", 17, 0), None)

    assert before.is_before(after)
    assert not before.is_same(after)
    assert unknown.is_same(before)
    assert not unknown.is_before(after)


def test_what_owners_of_different_buckets_reached_is_ordered_by_the_server() -> None:
    """By the stream that was made later, by the message that was stored later, else by number."""
    old, new = "2026-11-26T10:00:00Z", "2026-11-26T10:00:00.1Z"
    reached = [
        Reached(StreamPosition(old, 9, 90), 4),
        Reached(StreamPosition(new, 0, 0), 0),
        Reached(StreamPosition(new, 7, 100), 1),
        Reached(StreamPosition(new, 5, 110), 0),
    ]

    assert [[a.is_older(b) for b in reached] for a in reached] == [
        [False, True, True, True],
        [False, False, True, True],
        [False, False, False, True],
        [False, False, False, False],
    ]
    # Where messages expired, the time of the last one is not known.
    assert Reached(StreamPosition(new, 5, 0), 0).is_older(Reached(StreamPosition(new, 6, 1), 0))


def test_an_assignment_reads_back() -> None:
    """Members keep their order and ranges."""
    assignment = assign(["c-0", "c-1", "c-2"], partitions=10, generation=4)

    assert Assignment.decode(assignment.encode()) == assignment
    assert [assignment.owner(p) for p in (0, 2, 3, 9)] == ["c-0", "c-0", "c-1", "c-2"]
    assert len(assignment.of("nobody")) == 0


def test_a_source_in_any_bytes_travels_in_progress() -> None:
    """A path need not be UTF-8."""
    source = Committed("/var/log/\udcff", "0" * 16, 10, (("0" * 16, 3, 5),))
    unknown = (Named("/\udcfe", "1" * 16),)
    progress = Progress("main", 3, 2, 0, (source,), unknown=unknown, groups=("audit", "main"))

    assert Progress.decode(progress.encode()) == progress


def test_a_question_names_generations_or_asks_for_all() -> None:
    """Nothing is what older shippers ask, and means all."""
    named = (Named("/a\udcff", "1" * 16), Named("/a\udcff", "2" * 16), Named("/b", "1" * 16))

    assert Question.decode(Question(named).encode()) == Question(named)
    assert Question.decode(b"") == Question(None)
    assert Question().encode() == b""


def test_whatever_is_asked_for_fits_into_messages() -> None:
    """Many generations, and few with names of which each byte takes six."""
    many = [Named("/s", f"{number:016x}") for number in range(3 * PROGRESS_ROWS_MAX)]
    long = [Named("/" + "\udcff" * 4000, f"{number:016x}") for number in range(300)]
    for named in (many, long):
        asked = list(questions(named))

        assert [each for question in asked for each in question.generations or ()] == named
        assert len(asked) > 1
        for question in asked:
            assert Question.decode(question.encode()) == question
            assert len(question.encode()) <= 2 * PROGRESS_BYTES_MAX


def test_an_answer_says_of_all_that_it_was_asked_for_whether_it_is_known() -> None:
    """Also where nothing is: silence would be no answer."""
    one, two = Named("/s", "1" * 16), Named("/s", "2" * 16)
    known = Committed("/s", "2" * 16, 10)
    long = [Committed("/" + "\udcff" * 4000, f"{number:016x}", 5) for number in range(300)]

    assert list(answers(Question((one, two)), [known])) == [((known,), (one,))]
    assert list(answers(Question((one,)), [])) == [((), (one,))]
    assert list(answers(Question(), [])) == [((), ())]
    parts = list(answers(Question(), long))
    assert [each for told, _ in parts for each in told] == long
    for told, unknown in parts:
        progress = Progress("main", 3, 2, 0, told, unknown=unknown)
        assert len(progress.encode()) <= 2 * PROGRESS_BYTES_MAX


@given(st.binary(min_size=1, max_size=80))
def test_what_nobody_of_ours_wrote_is_refused(value: bytes) -> None:
    """By our own error, whatever it is."""
    for decode in (EpochRecord.decode, Assignment.decode, Progress.decode, Question.decode):
        with pytest.raises(BadRecord):
            decode(value)


@pytest.mark.parametrize("value", [b"null", b"[]", b"{}", b'{"position":1}', b'{"members":[1]}'])
def test_json_of_another_shape_is_refused(value: bytes) -> None:
    """It is named instead of raising something else."""
    for decode in (EpochRecord.decode, Assignment.decode, Progress.decode, Question.decode):
        with pytest.raises(BadRecord):
            decode(value)
