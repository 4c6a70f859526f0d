"""A record has one owner at a time, who knows of each write whether it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from components.fake_bucket import FakeBucket
from logpipeline.group.ownership import (
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Fenced,
    HeldRecord,
    OwnerRecords,
    RecordFormat,
    StoredRecord,
)
from logpipeline.nats.bucket import Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.records import BadRecord

KEY = "partition.0"


@dataclass(frozen=True, slots=True)
class Record:
    """A record with something that changes: *done*."""

    epoch: int
    owner: str
    incarnation: str
    done: int = 0

    def encode(self) -> bytes:
        return f"{self.epoch} {self.owner} {self.incarnation} {self.done}".encode()

    @staticmethod
    def decode(entry: Entry) -> Record:
        try:
            epoch, owner, incarnation, done = entry.value.decode().split()
            return Record(int(epoch), owner, incarnation, int(done))
        except ValueError as error:
            raise BadRecord("no record") from error


OURS = Record(4, "a", "run-1")


def done(count: int) -> Record:
    """Return our record with so much done."""
    return replace(OURS, done=count)


def to(count: int) -> Callable[[Record], Record]:
    """Return a change that notes that so much is done."""
    return lambda record: replace(record, done=count)


@pytest.fixture
def bucket() -> FakeBucket:
    """An empty bucket."""
    return FakeBucket()


@pytest.fixture(autouse=True)
def slept_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which take no time."""
    waits_s: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits_s.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return waits_s


def records(bucket: FakeBucket) -> OwnerRecords[Record]:
    """Return the records in *bucket*."""
    return OwnerRecords(bucket.bucket, RecordFormat(Record.decode))


async def held(bucket: FakeBucket) -> HeldRecord[Record]:
    """Take the record."""
    return await records(bucket).take(KEY, OURS, revision=0)


def stored(bucket: FakeBucket) -> Record | None:
    """Return what stands in *bucket*."""
    entry = bucket.entry(KEY)
    return Record.decode(entry) if entry is not None else None


def put(bucket: FakeBucket, value: bytes | None) -> None:
    """Write *value* as somebody else, or lose the record."""
    revision, _ = bucket.values.pop(KEY)
    if value is not None:
        bucket.values[KEY] = (revision + 1, value)


async def test_a_record_is_taken_at_the_revision_that_was_read(bucket: FakeBucket) -> None:
    """Of two that read the same one, one is too late."""
    found = await records(bucket).read(KEY)
    await records(bucket).take(KEY, OURS, revision=found.revision)

    with pytest.raises(Fenced):
        await records(bucket).take(KEY, replace(OURS, owner="b"), revision=found.revision)
    assert (found.record, stored(bucket)) == (None, OURS)
    assert await records(bucket).read(KEY) == StoredRecord(OURS, 1)


async def test_changes_follow_one_another(bucket: FakeBucket) -> None:
    """One that changes nothing writes nothing."""
    ours = await held(bucket)
    for count in (1, 2, 2):
        await ours.change(to(count))

    assert (ours.record, stored(bucket), bucket.writes) == (done(2), done(2), 3)


async def test_a_change_waits_for_a_server_that_is_away(
    bucket: FakeBucket, slept_s: list[float]
) -> None:
    """Longer after each try, up to a limit."""
    ours = await held(bucket)
    bucket.unsent = 7
    await ours.change(to(1))

    assert stored(bucket) == done(1)
    waits_s = [min(RETRY_FIRST_S * 2**number, RETRY_MAX_S) for number in range(7)]
    assert slept_s == waits_s


@pytest.mark.parametrize(
    ("unread", "writes"), [pytest.param(0, 2, id="seen"), pytest.param(1, 3, id="seen later")]
)
async def test_a_write_that_stands_without_an_answer_is_seen(
    bucket: FakeBucket, unread: int, writes: int
) -> None:
    """In the record itself; it is not written once more where that can be read at once."""
    ours = await held(bucket)
    bucket.lost_answers, bucket.unread = 1, unread
    await ours.change(to(1))
    await ours.change(to(2))

    assert (ours.record, stored(bucket), bucket.writes) == (done(2), done(2), 1 + writes)


async def test_a_write_that_did_not_arrive_is_written_again(bucket: FakeBucket) -> None:
    """The record shows that it does not stand."""
    ours = await held(bucket)
    bucket.lost_writes = 2
    await ours.change(to(1))

    assert (ours.record, stored(bucket), bucket.writes) == (done(1), done(1), 4)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(replace(OURS, epoch=5, owner="b").encode(), "b owns .* epoch 5", id="taken"),
        pytest.param(
            replace(OURS, incarnation="run-2").encode(), "a owns .* epoch 4, ours was 4", id="as us"
        ),
        pytest.param(replace(OURS, epoch=3).encode(), "went back to epoch 3", id="restored"),
        pytest.param(None, "lost the partition's record", id="lost"),
        pytest.param(b"nonsense", "was overwritten", id="overwritten"),
    ],
)
async def test_an_owner_that_lost_the_record_writes_no_more(
    bucket: FakeBucket, value: bytes | None, said: str
) -> None:
    """And is told why."""
    ours = await held(bucket)
    put(bucket, value)
    before = bucket.values.get(KEY)

    with pytest.raises(Fenced, match=said):
        await ours.check()
    with pytest.raises(Fenced, match=said):
        await ours.change(to(1))
    with pytest.raises(Fenced, match=said):
        await ours.try_change(to(1))
    assert bucket.values.get(KEY) == before


async def test_an_owner_has_the_record_while_the_bucket_shows_it(bucket: FakeBucket) -> None:
    """Whatever was written since."""
    ours = await held(bucket)
    await ours.change(to(1))
    await ours.check()

    assert await ours.read() == done(1)


async def test_an_older_record_of_ours_is_no_other_owners(
    bucket: FakeBucket, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica that lags shows it: the write goes on, and it is said."""
    ours = await held(bucket)
    old = bucket.entry(KEY)
    await ours.change(to(1))
    with caplog.at_level(logging.WARNING):
        bucket.lost_writes = 1
        await ours.change(to(2))
        quiet = len(caplog.records)
        bucket.lost_writes, bucket.shown = 1, [old]
        await ours.change(to(3))

    assert (ours.record, stored(bucket)) == (done(3), done(3))
    assert (quiet, [record.levelname for record in caplog.records]) == (0, ["WARNING"])


@pytest.mark.parametrize(
    ("lost_writes", "is_written"),
    [
        pytest.param(0, True, id="at once"),
        pytest.param(1, True, id="the second one"),
        pytest.param(2, False, id="none"),
    ],
)
async def test_a_change_that_waits_for_nobody_says_whether_it_stands(
    bucket: FakeBucket, slept_s: list[float], lost_writes: int, is_written: bool
) -> None:
    """It is written twice at most."""
    ours = await held(bucket)
    bucket.lost_writes = lost_writes

    assert await ours.try_change(to(1)) is is_written
    assert stored(bucket) == (done(1) if is_written else OURS)
    assert slept_s == []


async def test_a_change_that_waits_for_nobody_fails_where_it_cannot_be_sent(
    bucket: FakeBucket,
) -> None:
    """Nothing is written."""
    ours = await held(bucket)
    bucket.unsent = 1
    with pytest.raises(NotSent):
        await ours.try_change(to(1))

    assert (ours.record, stored(bucket)) == (OURS, OURS)


async def test_a_record_whose_taking_was_not_answered_may_be_ours(bucket: FakeBucket) -> None:
    """It is read to see that."""
    bucket.lost_answers = 1
    with pytest.raises(OutcomeUnknown):
        await held(bucket)

    assert (await records(bucket).read(KEY)).record == OURS
