"""A record of an epoch says who owns a partition, and keeps what its former owners left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.fake_bucket import FakeBucket
from logpipeline.group.ownership import Fenced
from logpipeline.records import (
    EPOCH_HISTORY_MAX,
    FORMER_FOLDERS_MAX,
    GONE_FOLDERS_MAX,
    SUCCESSION_HEADER,
    EpochRecord,
    EpochStart,
    Former,
    GoneFolder,
    Reached,
    StreamPosition,
    Succession,
    epoch_key,
)
from logpipeline_collector.epochs import EpochRecords, HeldEpoch, Successor, end_of, succeed

GROUP = "main"
KEY = epoch_key(GROUP, 0)


def at(sequence: int) -> StreamPosition:
    """Return a position in the stream."""
    return StreamPosition("2026-11-21T10:00:00Z", sequence, sequence * 10)


def reached(sequence: int, rollbacks: int | None = 0) -> Reached:
    """Return how far a stream is read."""
    return Reached(at(sequence), rollbacks)


def successor(sequence: int = 50, *, epoch: int = 4, folder: str = "there") -> Successor:
    """Return the collector `b`, which goes on behind *sequence*."""
    return Successor(
        member="b",
        incarnation=f"{folder}-7",
        epoch=epoch,
        assignment=9,
        reached=reached(sequence, 2),
    )


OLDER = Former("z", "older", 1, reached(0), reached(5))
LOST = GoneFolder("z", "older", 99, 0, 5, 0)
FORMER = EpochRecord(
    epoch=3,
    owner="a",
    incarnation="here-1",
    assignment=8,
    position=at(50),
    rollbacks=2,
    released=True,
    snapshot=6,
    snapshot_at=40,
    history=(EpochStart(3, 7),),
    begun=2,
    begun_ns=20,
    lost_bytes=11,
    missing_bytes=12,
    missed_messages=13,
    refused=(45,),
    succession=Succession(reached(7), reached(3), (OLDER,), (LOST,)),
    passed=at(60),
)


def test_the_first_owner_of_a_partition_begins_its_record() -> None:
    """`begun` says where a group begins that leaves out what was stored before."""
    began = successor(50, epoch=1)
    record = EpochRecord(
        epoch=1,
        owner="b",
        incarnation="there-7",
        assignment=9,
        position=at(50),
        rollbacks=2,
        history=(EpochStart(1, 50),),
        succession=Succession(began.reached, began.reached),
    )

    assert succeed(None, began) == record
    assert succeed(None, began, is_beginning=True) == replace(record, begun=50, begun_ns=500)
    unknown = replace(began, reached=reached(50, None))
    assert succeed(None, unknown).rollbacks == 0


def test_a_successor_keeps_what_is_known_of_the_partition() -> None:
    """The former owner's folder, which may come back, is one of it."""
    ended = Former("a", "here", 3, reached(3), reached(50, 2))

    assert succeed(FORMER, successor()) == replace(
        FORMER,
        epoch=4,
        owner="b",
        incarnation="there-7",
        assignment=9,
        released=False,
        history=(EpochStart(3, 7), EpochStart(4, 50)),
        succession=Succession(reached(50, 2), reached(50, 2), (OLDER, ended), (LOST,)),
    )


def test_a_successor_with_the_same_folder_has_it_since_its_former_begin() -> None:
    """And where older collectors did not say since when, from now on."""
    same = succeed(FORMER, successor(folder="here")).succession
    untold = succeed(replace(FORMER, succession=None), successor(folder="here")).succession

    assert same is not None
    assert untold is not None
    assert (same.start, same.since) == (reached(50, 2), reached(3))
    assert untold == Succession(
        reached(50, 2), reached(50, 2), (Former("a", "here", 3, None, reached(50, 2)),)
    )


def test_a_successor_that_reads_again_has_not_passed_what_was_passed() -> None:
    """It may lie between."""
    assert succeed(FORMER, successor(49)).passed is None


def test_a_group_may_begin_behind_what_it_had() -> None:
    """As where all of it is gone."""
    record = succeed(FORMER, successor(), is_beginning=True)

    assert (record.begun, record.begun_ns) == (50, 500)


@pytest.mark.parametrize(
    ("again_from", "snapshot"),
    [pytest.param(0, (6, 40), id="nothing"), pytest.param(1, (0, 0), id="something")],
)
def test_a_snapshot_is_left_where_a_lost_folder_is_read_again(
    again_from: int, snapshot: tuple[int, int]
) -> None:
    """The snapshot describes the messages that are read again: they would count as known."""
    gone = GoneFolder("a", "here", 100, 7, 50, again_from)
    record = succeed(FORMER, successor(), gone=gone)

    assert (record.snapshot, record.snapshot_at) == snapshot
    assert record.succession is not None
    assert record.succession.gone == (LOST, gone)


def test_what_a_record_keeps_of_former_owners_is_bounded() -> None:
    """The newest stay, each folder once."""
    record = FORMER
    for number in range(FORMER_FOLDERS_MAX + 2):
        gone = GoneFolder("b", "x", number, 0, 0, 0)
        again = successor(epoch=4 + number, folder=f"folder-{number % (FORMER_FOLDERS_MAX + 1)}")
        record = succeed(record, again, gone=gone)

    assert record.succession is not None
    folders = [each.folder for each in record.succession.former]
    assert len(record.history) == EPOCH_HISTORY_MAX
    assert record.history[-1].epoch == FORMER_FOLDERS_MAX + 5
    assert len(folders) == len(set(folders)) == FORMER_FOLDERS_MAX
    assert folders[-1] == f"folder-{FORMER_FOLDERS_MAX}"
    assert len(record.succession.gone) == GONE_FOLDERS_MAX
    assert record.succession.gone[-1].time_ns == FORMER_FOLDERS_MAX + 1


@pytest.mark.parametrize(
    ("taken", "end"),
    [
        pytest.param(successor(30), reached(30, 2), id="it has less"),
        pytest.param(successor(50), reached(50, 2), id="it has as much"),
        pytest.param(successor(70), reached(50, 2), id="it has more"),
        pytest.param(successor(70, epoch=5), reached(70, 2), id="a folder had a higher epoch"),
        pytest.param(successor(70, folder="here"), reached(70, 2), id="the same folder"),
    ],
)
def test_the_end_of_an_owner_is_where_its_successor_began(taken: Successor, end: Reached) -> None:
    """Where two folders may have had one epoch, what the former one committed counts at least."""
    assert end_of(FORMER, taken) == end


async def held(bucket: FakeBucket) -> HeldEpoch:
    """Own the partition behind the record `FORMER`."""
    assert FORMER.succession is not None
    headers = {SUCCESSION_HEADER: FORMER.succession.encode()}
    await bucket.swap(KEY, FORMER.encode(), revision=0, headers=headers)
    return await epochs(bucket).take_over(
        0, await epochs(bucket).read(0), epoch=4, assignment=9, reached=reached(50, 2)
    )


def epochs(bucket: FakeBucket) -> EpochRecords:
    """Return the records that `b` sees and writes."""
    return EpochRecords(bucket.bucket, group=GROUP, member="b", incarnation="there-7")


@pytest.fixture
def bucket() -> FakeBucket:
    """An empty bucket."""
    return FakeBucket()


async def test_a_partition_is_taken_over_and_released(bucket: FakeBucket) -> None:
    """The record stands in the bucket, with its header."""
    ours = await held(bucket)
    assert ours.record == succeed(FORMER, successor())
    assert (await epochs(bucket).read(0)).record == ours.record

    await ours.point_to_snapshot(8, 48)
    await ours.note_passed(at(70))
    await ours.begin_behind(at(3))
    await ours.release()

    assert (await epochs(bucket).read(0)).record == replace(
        succeed(FORMER, successor()),
        snapshot=8,
        snapshot_at=48,
        passed=at(70),
        begun=3,
        begun_ns=30,
        released=True,
    )


@pytest.mark.parametrize(
    ("to", "passed"),
    [
        pytest.param(59, at(60), id="not there yet"),
        pytest.param(60, None, id="there"),
        pytest.param(61, None, id="further"),
    ],
)
async def test_a_commit_says_how_far_it_is(
    bucket: FakeBucket, to: int, passed: StreamPosition | None
) -> None:
    """What was passed is said until the position is there."""
    ours = await held(bucket)
    before = ours.record
    await ours.advance(
        at(to),
        rollbacks=2,
        assignment=10,
        lost_bytes=1,
        missing_bytes=2,
        missed_messages=3,
        refused=(51,),
    )

    assert ours.record == replace(
        before,
        position=at(to),
        assignment=10,
        lost_bytes=1,
        missing_bytes=2,
        missed_messages=3,
        refused=(51,),
        passed=passed,
    )


@pytest.mark.parametrize(
    ("went_back_to", "begun", "snapshot_at"),
    [pytest.param(1, 1, 1, id="before all"), pytest.param(30, 2, 30, id="before the snapshot")],
)
async def test_a_commit_in_a_stream_that_went_back_says_what_is_still_the_same(
    bucket: FakeBucket, went_back_to: int, begun: int, snapshot_at: int
) -> None:
    """Nothing of it was passed."""
    ours = await held(bucket)
    await ours.advance(
        at(35),
        rollbacks=3,
        assignment=9,
        lost_bytes=0,
        missing_bytes=0,
        went_back_to=went_back_to,
    )

    record = ours.record
    assert (record.begun, record.snapshot_at, record.passed) == (begun, snapshot_at, None)
    assert (record.rollbacks, record.missed_messages, record.refused) == (3, 0, ())


@pytest.mark.parametrize(
    ("sequence", "rollbacks", "passed"),
    [pytest.param(50, 2, at(60), id="as it was"), pytest.param(49, None, None, id="less")],
)
async def test_the_record_of_a_dead_predecessor_is_let_go(
    bucket: FakeBucket, sequence: int, rollbacks: int | None, passed: StreamPosition | None
) -> None:
    """Behind what it had reached."""
    ours = await held(bucket)
    seen = await epochs(bucket).read(0)
    await epochs(bucket).let_go(0, seen, reached(sequence, rollbacks))

    assert (await epochs(bucket).read(0)).record == replace(
        ours.record, position=at(sequence), rollbacks=rollbacks or 0, released=True, passed=passed
    )


@pytest.mark.parametrize(
    ("epoch", "is_fenced"),
    [
        pytest.param(3, False, id="older, of a replica that lags"),
        pytest.param(4, False, id="ours"),
        pytest.param(5, True, id="newer"),
        pytest.param(None, True, id="lost"),
    ],
)
async def test_a_look_shows_that_the_record_is_gone(
    bucket: FakeBucket, epoch: int | None, is_fenced: bool
) -> None:
    """Nothing else would, while nothing is committed."""
    ours = await held(bucket)
    found = replace(ours.record, epoch=epoch) if epoch is not None else None
    revision, _ = bucket.values.pop(KEY)
    if found is not None:
        bucket.values[KEY] = (revision, found.encode())

    if is_fenced:
        with pytest.raises(Fenced):
            await ours.look()
    else:
        await ours.look()
    bucket.unread = 1
    await ours.look()
