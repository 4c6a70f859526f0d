"""The members of a consumer: which of them may read side by side, which are alive, and the share of
each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from logpipeline.consuming.options import ReaderBusy
from logpipeline.consuming.records import reader_key
from logpipeline.group.membership import LEFT, Heartbeat, Sighting, Sightings, shows_life
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.partition import PartitionRange, split
from logpipeline.subjects import key_value_subject

log = logging.getLogger(__name__)

# A member that was silent for so many take-over times is removed from the bucket.
FORGET_TAKEOVERS = 6
# Members of one consumer; more partitions than that have no use for more readers.
MEMBERS_MAX = 1024
# How a member reads: for itself; partition by partition; or together, any message for any member.
ALONE, DIVIDED, SHARED = "alone", "divided", "shared"


class Members:
    """Our own heartbeat as *member*, and the other members of *consumer*."""

    def __init__(
        self,
        js: JetStream,
        bucket: Bucket,
        *,
        consumer: str,
        member: str,
        incarnation: str,
        kind: str,
        takeover_after_s: float,
    ) -> None:
        self.member = member
        self.takeover_after_s = takeover_after_s
        self._js = js
        self._bucket = bucket
        self._consumer = consumer
        self._value = f"{kind} {incarnation}".encode()
        self._sightings = Sightings(js.connection)
        self._heartbeat = Heartbeat(self._beat, takeover_after_s=takeover_after_s)
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Show that we are there, once it is certain that no rival is: another reader where one of
        the two reads alone, or one of our own name.

        Raises:
            ReaderBusy: a rival is there.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read or written.
        """
        seen = await self._entries()
        for name, entry in sorted(seen.items()):
            if self._is_rival(name, entry):
                if await self._is_alive(name, entry):
                    raise self._busy(name, entry)
                await self._forget(name)
        # Another one may have looked at the same time, and found us as little as we found it.
        revision = await self._first_beat(seen)
        self._value += f" {revision}".encode()
        for name, entry in sorted((await self._entries()).items()):
            is_new = name not in seen or seen[name].revision != entry.revision
            is_first = _since(entry) < revision
            if name != self.member and is_new and is_first and self._is_rival(name, entry):
                await self._forget(self.member)
                raise self._busy(name, entry)
        self._task = asyncio.create_task(self._heartbeat.run(), name="consume-heartbeat")

    def _is_rival(self, name: str, entry: Entry) -> bool:
        own, other = _kind(self._value), _kind(entry.value)
        return entry.value != LEFT and (name == self.member or own != other or own == ALONE)

    def _busy(self, name: str, entry: Entry) -> ReaderBusy:
        advice = _advice(_kind(self._value), _kind(entry.value), is_namesake=name == self.member)
        return ReaderBusy(f"consumer {self._consumer} is being read by {name}; {advice}")

    async def _first_beat(self, seen: dict[str, Entry]) -> int:
        """Write our heartbeat unless the key has changed since it was *seen*; return its revision.

        Raises:
            ReaderBusy: a namesake was faster.
            NotSent, OutcomeUnknown, ApiError: it may or may not be written.
        """
        key = reader_key(self._consumer, self.member)
        found, former = await self._bucket.get(key), seen.get(self.member)
        revision = found.revision if found is not None else 0
        is_known = former is not None and former.revision == revision
        if found is None or found.value == LEFT or is_known:
            with contextlib.suppress(Conflict):
                return await self._bucket.swap(key, self._value, revision=revision)
        raise self._busy(self.member, found or Entry(self._value, 0, 0))

    async def leave(self) -> None:
        """Remove ourselves, so that others need not wait."""
        if self._task is not None:
            await self._heartbeat.stop()
            await self._task
            await self._forget(self.member)

    async def living(self) -> list[str]:
        """Return the members that are alive as far as we saw, ourselves among them, sorted.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        sightings = self._sightings.note_all(await self._entries())
        for name, sighting in sightings.items():
            if _silent_s(sighting) > FORGET_TAKEOVERS * self.takeover_after_s:
                await self._forget(name)
        others = {
            name
            for name, sighting in sightings.items()
            if not sighting.has_left and _silent_s(sighting) < self.takeover_after_s
        }
        return sorted(others | {self.member})

    def share(self, living: list[str], partitions: int) -> PartitionRange:
        """Return the partitions that are ours while *living* are there."""
        ranges = split(partitions=partitions, collectors=len(living))
        return ranges[living.index(self.member)]

    async def _forget(self, name: str) -> None:
        """Remove the heartbeat of *name*, so that a bucket does not fill up with former members."""
        key = reader_key(self._consumer, name)
        subject = key_value_subject(self._bucket.name, key)
        try:
            await self._js.call(f"STREAM.PURGE.{self._bucket.stream}", {"filter": subject})
        except (NotSent, OutcomeUnknown, ApiError) as error:
            # A login that may not purge can still write that the member left.
            log.debug("a member was not removed", extra={"reason": str(error)})
            with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
                await self._bucket.put(key, LEFT)

    async def _entries(self) -> dict[str, Entry]:
        prefix = key_value_subject(self._bucket.name, reader_key(self._consumer, ""))
        try:
            info = await self._js.call(
                f"STREAM.INFO.{self._bucket.stream}", {"subjects_filter": f"{prefix}>"}
            )
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
            raise ReaderBusy(
                f"the pipeline's bucket {self._bucket.name} does not exist, and readers share the "
                "partitions in it; make it with `logpipeline apply`"
            ) from error
        names = sorted(info["state"].get("subjects") or {})[:MEMBERS_MAX]
        keys = [subject.removeprefix(key_value_subject(self._bucket.name, "")) for subject in names]
        found = await asyncio.gather(*(self._bucket.get(key) for key in keys))
        root = reader_key(self._consumer, "")
        pairs = zip(keys, found, strict=True)
        return {key.removeprefix(root): entry for key, entry in pairs if entry is not None}

    async def _is_alive(self, name: str, entry: Entry) -> bool:
        key = reader_key(self._consumer, name)
        return await shows_life(self._bucket, key, entry, takeover_after_s=self.takeover_after_s)

    async def _beat(self) -> None:
        await self._bucket.put(reader_key(self._consumer, self.member), self._value)


def _silent_s(sighting: Sighting) -> float:
    return asyncio.get_running_loop().time() - sighting.revision_since_s


def _since(entry: Entry) -> int:
    """Return the revision of the first heartbeat of the member whose *entry* it is; the first one
    itself does not hold it yet.
    """
    words = entry.value.decode("utf-8", "replace").split(" ")
    return int(words[2]) if len(words) > 2 and words[2].isdecimal() else entry.revision


def _kind(value: bytes) -> str:
    return value.decode("utf-8", "replace").split(" ")[0]


def _advice(own: str, other: str, *, is_namesake: bool) -> str:
    if ALONE in (own, other):
        return "stop it, or share the work: start all of them with --group"
    if own != other:
        return (
            "one member keeps the order and the other does not: give all of them the same --state, "
            "--ack and --in-order, or another name for the consumer"
        )
    assert is_namesake
    return "give each member a name of its own (--member)"
