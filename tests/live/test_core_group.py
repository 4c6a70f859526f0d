"""Ownership of a record, and heartbeats: what collectors and readers of `consume` build on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from logpipeline.embedded import EmbeddedServer
from logpipeline.group.membership import LEFT, Heartbeat, Sightings, shows_life
from logpipeline.group.ownership import Fenced, HeldRecord, OwnerRecords, RecordFormat
from logpipeline.nats.bucket import Bucket, Entry, bucket_stream_config
from logpipeline.nats.connection import Connection, NatsOptions, OutcomeUnknown
from logpipeline.nats.jetstream import JetStream
from logpipeline.records import BadRecord
from waiting import WITHIN_S

KEY = "owned"


@dataclass(frozen=True, slots=True)
class Note:
    """A record of an owner, with something that it writes."""

    epoch: int
    owner: str
    incarnation: str
    text: str = ""

    def encode(self) -> bytes:
        """Return the note as JSON."""
        return json.dumps([self.epoch, self.owner, self.incarnation, self.text]).encode()

    @staticmethod
    def decode(entry: Entry) -> Note:
        """Return the note that `encode` made."""
        try:
            return Note(*json.loads(entry.value))
        except (ValueError, TypeError) as error:
            raise BadRecord("no note") from error


class UnansweredOnce(Bucket):
    """A bucket whose next swap is done, and whose answer is lost."""

    is_answer_lost = False

    async def swap(
        self, key: str, value: bytes, *, revision: int, headers: dict[str, str] | None = None
    ) -> int:
        """Swap, and lose the answer once."""
        written = await super().swap(key, value, revision=revision, headers=headers)
        if self.is_answer_lost:
            self.is_answer_lost = False
            raise OutcomeUnknown("lost on purpose")
        return written


@pytest.fixture
async def bucket(nats_server: EmbeddedServer) -> AsyncIterator[UnansweredOnce]:
    """An empty bucket."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    config = bucket_stream_config("group", replicas=1, storage="memory", max_bytes=2**20)
    await js.call("STREAM.CREATE.KV_group", config)
    yield UnansweredOnce(js, "group")
    await connection.close()


def records(bucket: Bucket) -> OwnerRecords[Note]:
    return OwnerRecords(bucket, RecordFormat(Note.decode))


async def taken(bucket: Bucket, owner: str) -> HeldRecord[Note]:
    found = await records(bucket).read(KEY)
    epoch = found.record.epoch + 1 if found.record else 1
    note = Note(epoch, owner, f"{owner}-1")
    return await records(bucket).take(KEY, note, revision=found.revision)


async def write(held: HeldRecord[Note], text: str) -> None:
    await held.change(lambda note: replace(note, text=text))


async def test_of_two_that_take_a_record_one_owns_it(bucket: UnansweredOnce) -> None:
    """Both saw the same revision."""
    found = await records(bucket).read(KEY)
    await records(bucket).take(KEY, Note(1, "a", "a-1"), revision=found.revision)

    with pytest.raises(Fenced):
        await records(bucket).take(KEY, Note(1, "b", "b-1"), revision=found.revision)


async def test_a_former_owner_never_writes_again(bucket: UnansweredOnce) -> None:
    """Its swap fails, whatever it wants to write; the successor's record stands."""
    former = await taken(bucket, "a")
    successor = await taken(bucket, "b")
    await write(successor, "new")

    with pytest.raises(Fenced, match="b owns the partition since epoch 2, ours was 1"):
        await write(former, "old")
    with pytest.raises(Fenced):
        await former.try_change(lambda note: replace(note, text="old"))
    with pytest.raises(Fenced):
        await former.check()
    assert (await records(bucket).read(KEY)).record == Note(2, "b", "b-1", "new")


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_an_owner_whose_answer_was_lost_goes_on(
    bucket: UnansweredOnce, is_waiting: bool
) -> None:
    """The write is found in the bucket, and the next one follows it."""
    held = await taken(bucket, "a")
    bucket.is_answer_lost = True
    if is_waiting:
        await write(held, "one")
    else:
        assert await held.try_change(lambda note: replace(note, text="one"))
    await write(held, "two")

    assert (await records(bucket).read(KEY)).record == Note(1, "a", "a-1", "two")


async def test_a_write_of_ours_that_was_cancelled_is_no_rival(bucket: UnansweredOnce) -> None:
    """Its revision is not known, and it is our own incarnation's."""
    held = await taken(bucket, "a")
    unknown = replace(held.record, text="unknown").encode()
    await bucket.put(KEY, unknown)

    assert await held.try_change(lambda note: replace(note, text="two"))


@pytest.mark.parametrize("value", [b"{}", None])
async def test_a_record_that_is_lost_or_overwritten_fences_its_owner(
    bucket: UnansweredOnce, value: bytes | None
) -> None:
    """It cannot be told who wrote since."""
    held = await taken(bucket, "a")
    if value is None:
        await bucket.erase(KEY)
    else:
        await bucket.put(KEY, value)

    with pytest.raises(Fenced):
        await write(held, "more")


async def test_nothing_is_written_once_a_heartbeat_is_stopped(bucket: UnansweredOnce) -> None:
    """A beat under way ends before `stop` does."""
    beats, allowed = 0, asyncio.Event()

    async def beat() -> None:
        nonlocal beats
        await allowed.wait()
        beats += 1

    heartbeat = Heartbeat(beat, takeover_after_s=0.0)
    running = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(heartbeat.stop())
    await asyncio.wait([stopping], timeout=0.05)
    was_waiting, was = not stopping.done(), beats
    allowed.set()
    await stopping
    await running

    assert (was_waiting, was, beats) in [(True, 0, 1), (False, 0, 0)]


async def test_a_member_shows_life_by_another_write(bucket: UnansweredOnce) -> None:
    """The same value again is enough; nothing, or that it left, is not."""
    await bucket.put(KEY, b"here")
    entry = await bucket.get(KEY)
    assert entry is not None
    waits = {"takeover_after_s": 0.2}
    is_silent = not await shows_life(bucket, KEY, entry, **waits)
    await bucket.put(KEY, b"here")
    is_alive = await shows_life(bucket, KEY, entry, **waits)
    await bucket.put(KEY, LEFT)
    has_left = not await shows_life(bucket, KEY, entry, **waits)

    assert (is_silent, is_alive, has_left) == (True, True, True)


async def test_silence_begins_again_with_a_new_connection(bucket: UnansweredOnce) -> None:
    """While there was none, no heartbeat could be seen."""
    await bucket.put(KEY, b"here")
    entry = await bucket.get(KEY)

    class Sessions:
        sessions = 1

    sightings = Sightings(Sessions())  # type: ignore[arg-type]  # it reads the number alone
    first = sightings.note("a", entry).revision_since_s
    await asyncio.sleep(0.01)
    same = sightings.note("a", entry).revision_since_s
    Sessions.sessions = 2
    later = sightings.note("a", entry).revision_since_s

    assert first == same < later
    assert not sightings.note("a", entry).has_left
    assert sightings.note("b", None).has_left
