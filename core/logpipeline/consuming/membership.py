"""Which members of a consumer are alive, and which of them reads which partition."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, replace

from logpipeline.consuming.options import (
    Claim,
    ClaimLost,
    Progress,
    ReaderBusy,
    StateForeign,
    claim_key,
    reader_key,
)
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.partition import PartitionRange, split
from logpipeline.records import BadRecord
from logpipeline.subjects import key_value_subject

log = logging.getLogger(__name__)

# Heartbeats that may be lost before a member counts as gone.
HEARTBEATS_PER_TAKEOVER = 4
LEFT = b""
# Silent for so many times that, nobody waits for it any more.
FORGET_TAKEOVERS = 6
# Members of one consumer; more partitions than that have no use for more readers.
MEMBERS_MAX = 1024
# How a member reads: for itself; partition by partition; or together, any message for any member.
ALONE, DIVIDED, SHARED = "alone", "divided", "shared"


class HeldClaim:
    """A partition that this process reads as *consumer*."""

    def __init__(self, bucket: Bucket, key: str, claim: Claim, revision: int) -> None:
        self.progress = claim.progress
        self.epoch = claim.epoch
        self._bucket = bucket
        self._key = key
        self._claim = claim
        self._revision = revision

    async def save(self, progress: Progress | None, *, released: bool = False) -> None:
        """Write how far the partition was processed.

        Raises:
            ClaimLost: another member has it.
            NotSent, OutcomeUnknown, ApiError: it may or may not be written; call again.
        """
        wanted = replace(self._claim, progress=progress, released=released)
        try:
            self._revision = await self._bucket.swap(
                self._key, wanted.encode(), revision=self._revision
            )
        except Conflict:
            # A write of ours whose answer was lost is no rival.
            entry = await self._bucket.get(self._key)
            if entry is None or not self._is_ours(entry):
                raise ClaimLost(f"another member has {self._key}") from None
            self._revision = await self._swap_again(wanted, entry)
        self._claim, self.progress = wanted, progress

    async def check(self) -> None:
        """Look whether the partition still is ours.

        Raises:
            ClaimLost: another member has it.
            NotSent, OutcomeUnknown, ApiError: it could not be asked.
        """
        entry = await self._bucket.get(self._key)
        if entry is None or not self._is_ours(entry):
            raise ClaimLost(f"another member has {self._key}")

    async def release(self) -> None:
        """Give the partition up, so that the next member need not wait."""
        try:
            await self.save(self.progress, released=True)
        except (ClaimLost, NotSent, OutcomeUnknown, ApiError) as error:
            log.debug("a claim was not released", extra={"reason": str(error)})

    async def _swap_again(self, wanted: Claim, entry: Entry) -> int:
        try:
            return await self._bucket.swap(self._key, wanted.encode(), revision=entry.revision)
        except Conflict:
            raise ClaimLost(f"another member has {self._key}") from None

    def _is_ours(self, entry: Entry) -> bool:
        try:
            found = Claim.decode(entry.value)
        except BadRecord:
            return False
        return (found.epoch, found.incarnation) == (self._claim.epoch, self._claim.incarnation)


async def look(bucket: Bucket, consumer: str, partition: int) -> tuple[Claim | None, int]:
    """Return who reads *partition*, None if nobody ever did, and the revision that says so.

    Raises:
        StateForeign: what stands there is no claim.
        NotSent, OutcomeUnknown, ApiError: it could not be read.
    """
    entry = await bucket.get(claim_key(consumer, partition))
    if entry is None:
        return None, 0
    try:
        return Claim.decode(entry.value), entry.revision
    except BadRecord as error:
        raise StateForeign(
            f"{error}; begin anew with --reset, or restore the key {claim_key(consumer, partition)}"
        ) from error


async def claim(
    bucket: Bucket, consumer: str, partition: int, *, member: str, incarnation: str
) -> HeldClaim | None:
    """Take *partition* whoever had it, and return the claim, or None where another one was faster.
    The caller has looked whether its owner lives.

    Raises:
        StateForeign, NotSent, OutcomeUnknown, ApiError: see `look`.
    """
    found, revision = await look(bucket, consumer, partition)
    taken = Claim(
        epoch=found.epoch + 1 if found else 1,
        owner=member,
        incarnation=incarnation,
        progress=found.progress if found else None,
    )
    key = claim_key(consumer, partition)
    try:
        revision = await bucket.swap(key, taken.encode(), revision=revision)
    except Conflict:
        return None
    return HeldClaim(bucket, key, taken, revision)


@dataclass(slots=True)
class _Sight:
    revision: int
    since_s: float
    is_gone: bool


class Members:
    """Our own heartbeat as *member*, and who else is there."""

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
        self._seen: dict[str, _Sight] = {}
        self._session = 0
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Show that we are there, once it is certain that nobody is who must not be: another
        reader where one of the two reads alone, or one of our own name.

        Raises:
            ReaderBusy: somebody is.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be asked.
        """
        own = _kind(self._value)
        for name, entry in sorted((await self._entries()).items()):
            is_rival = name == self.member or own != _kind(entry.value) or own == ALONE
            if entry.value != LEFT and is_rival:
                if await self._beats(name, entry):
                    raise ReaderBusy(
                        f"consumer {self._consumer} is being read by {name}; "
                        + _advice(own, _kind(entry.value), is_namesake=name == self.member)
                    )
                await self._forget(name)
        await self._bucket.put(reader_key(self._consumer, self.member), self._value)
        self._task = asyncio.create_task(self._beat(), name="consume-heartbeat")

    async def leave(self) -> None:
        """Say that we end, so that others need not wait."""
        if self._task is not None:
            # A heartbeat under way is waited for, not cancelled: the server writes and purges in
            # whatever order it likes, and would keep one that was written behind the purge.
            self._leaving.set()
            await self._task
            await self._forget(self.member)

    async def living(self) -> list[str]:
        """Return the members that are alive as far as we saw, ourselves among them, sorted.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the bucket could not be asked.
        """
        self._look(await self._entries())
        for name in [name for name, sight in self._seen.items() if self._is_forgotten(sight)]:
            await self._forget(name)
            del self._seen[name]
        others = {name for name, sight in self._seen.items() if self._is_alive(sight)}
        return sorted(others | {self.member})

    def share(self, living: list[str], partitions: int) -> PartitionRange:
        """Return the partitions that are ours while *living* are there."""
        ranges = split(partitions=partitions, collectors=len(living))
        return ranges[living.index(self.member)]

    def _is_alive(self, sight: _Sight) -> bool:
        silent_s = asyncio.get_running_loop().time() - sight.since_s
        return not sight.is_gone and silent_s < self.takeover_after_s

    def _is_forgotten(self, sight: _Sight) -> bool:
        silent_s = asyncio.get_running_loop().time() - sight.since_s
        return silent_s > FORGET_TAKEOVERS * self.takeover_after_s

    async def _forget(self, name: str) -> None:
        """Remove what *name* left, so that a bucket does not fill up with those who were there."""
        key = reader_key(self._consumer, name)
        subject = key_value_subject(self._bucket.name, key)
        try:
            await self._js.call(f"STREAM.PURGE.{self._bucket.stream}", {"filter": subject})
        except (NotSent, OutcomeUnknown, ApiError) as error:
            # Without the right to purge it says at least that it is gone.
            log.debug("a member was not removed", extra={"reason": str(error)})
            with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
                await self._bucket.put(key, LEFT)

    def _look(self, entries: dict[str, Entry]) -> None:
        if self._session != self._js.connection.sessions:
            # While we were cut off nobody could show us anything: silence counts from here.
            self._seen.clear()
            self._session = self._js.connection.sessions
        now_s = asyncio.get_running_loop().time()
        for name in self._seen.keys() - entries.keys():
            self._seen[name].is_gone = True
        for name, entry in entries.items():
            sight = self._seen.setdefault(name, _Sight(entry.revision, now_s, is_gone=False))
            sight.is_gone = entry.value == LEFT
            if sight.revision != entry.revision:
                sight.revision, sight.since_s = entry.revision, now_s

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
                f"the pipeline's bucket {self._bucket.name} is not there, in which readers agree "
                "who reads what; make it with `logpipeline apply`"
            ) from error
        names = sorted(info["state"].get("subjects") or {})[:MEMBERS_MAX]
        keys = [subject.removeprefix(key_value_subject(self._bucket.name, "")) for subject in names]
        found = await asyncio.gather(*(self._bucket.get(key) for key in keys))
        root = reader_key(self._consumer, "")
        pairs = zip(keys, found, strict=True)
        return {key.removeprefix(root): entry for key, entry in pairs if entry is not None}

    async def _beats(self, name: str, entry: Entry) -> bool:
        """Return whether *name* shows itself again before a take-over would be due."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.takeover_after_s
        while loop.time() < until:
            await asyncio.sleep(self.takeover_after_s / (2 * HEARTBEATS_PER_TAKEOVER))
            now = await self._bucket.get(reader_key(self._consumer, name))
            if now is None or now.value == LEFT:
                return False
            if now.revision != entry.revision:
                return True
        return False

    async def _beat(self) -> None:
        while not await self._leaves_within(self.takeover_after_s / HEARTBEATS_PER_TAKEOVER):
            try:
                await self._bucket.put(reader_key(self._consumer, self.member), self._value)
            except (NotSent, OutcomeUnknown, ApiError) as error:
                log.debug("no heartbeat", extra={"reason": str(error)})

    async def _leaves_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        return self._leaving.is_set()


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
