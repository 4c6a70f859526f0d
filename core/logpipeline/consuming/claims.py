"""Claims: which reader of a consumer owns which partition."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import replace

from logpipeline.consuming.options import StateForeign
from logpipeline.consuming.records import Claim, ReadProgress, claim_key
from logpipeline.group.ownership import (
    Fenced,
    HeldRecord,
    OwnerRecords,
    RecordFormat,
    StoredRecord,
)
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import BadRecord

log = logging.getLogger(__name__)

# A command must end soon; other members take the partition over after a while, released or not.
RELEASE_DEADLINE_S = 5.0


def may_take(
    found: Claim | None,
    *,
    incarnation: str,
    living: Collection[str],
    is_group: bool,
    was_ours: bool,
) -> bool:
    """Return whether the process *incarnation* may take a partition of its share that was *found*
    claimed so. A group leaves a partition to its owner while that is among the *living* members. A
    reader alone has looked before that no other one is there: who has a partition that *was_ours*
    came later, and took us for dead.
    """
    if found is None or found.released or found.incarnation == incarnation:
        return True
    return found.owner not in living if is_group else not was_ours


FORMAT = RecordFormat(lambda entry: Claim.decode(entry.value))


class HeldClaim:
    """A partition that this process reads."""

    def __init__(self, held: HeldRecord[Claim]) -> None:
        self._held = held

    @property
    def progress(self) -> ReadProgress | None:
        """How far the partition was processed, as it was saved last."""
        return self._held.record.progress

    async def save(self, progress: ReadProgress) -> None:
        """Write how far the partition was processed, however long the server is away.

        Raises:
            Fenced: another member has the partition.
        """
        await self._held.change(lambda claim: replace(claim, progress=progress))

    async def check(self) -> None:
        """Look whether the partition still is ours.

        Raises:
            Fenced: another member has it.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        await self._held.check()

    async def release(self, progress: ReadProgress | None) -> None:
        """Give the partition up, with *progress* as it is now, so that the next member need not
        wait; a server that is away is not waited for.
        """
        try:
            async with asyncio.timeout(RELEASE_DEADLINE_S):
                is_written = await self._held.try_change(
                    lambda claim: replace(claim, released=True, progress=progress)
                )
        except (Fenced, NotSent, ApiError, TimeoutError) as error:
            log.debug("a claim was not released", extra={"reason": str(error)})
        else:
            if not is_written:
                log.debug("it is unknown whether a claim was released")


class Claims:
    """The claims of *consumer*, taken as *member* by the process *incarnation*."""

    def __init__(self, bucket: Bucket, *, consumer: str, member: str, incarnation: str) -> None:
        self._records = OwnerRecords(bucket, FORMAT)
        self._consumer = consumer
        self._member = member
        self._incarnation = incarnation
        # Partitions of which the bucket may say that they are ours: a write of which no answer came
        # may have been stored, and a release that failed was not.
        self._may_be_ours: set[int] = set()

    async def read(self, partition: int) -> StoredRecord[Claim]:
        """Return the claim on *partition* as it is now.

        Raises:
            StateForeign: the key holds something else.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        key = claim_key(self._consumer, partition)
        try:
            return await self._records.read(key)
        except BadRecord as error:
            raise StateForeign(
                f"{error}; begin anew with --reset, or restore the key {key}"
            ) from error

    async def take(self, partition: int) -> HeldClaim | None:
        """Take *partition* from its owner, and return the claim, or None where another member was
        faster. The caller has looked whether the owner is alive.

        Raises:
            StateForeign, NotSent, OutcomeUnknown, ApiError: see `read`.
        """
        found = await self.read(partition)
        former = found.record
        claim = Claim(
            epoch=former.epoch + 1 if former else 1,
            owner=self._member,
            incarnation=self._incarnation,
            progress=former.progress if former else None,
        )
        key = claim_key(self._consumer, partition)
        self._may_be_ours.add(partition)
        try:
            return HeldClaim(await self._records.take(key, claim, revision=found.revision))
        except Fenced:
            return None

    async def let_go(self, *, kept: Collection[int]) -> None:
        """Release what the bucket says is ours, but for the partitions *kept*: a group leaves each
        partition to its owner while that lives.

        Raises:
            StateForeign, NotSent, OutcomeUnknown, ApiError: see `read`.
        """
        for partition in sorted(self._may_be_ours - set(kept)):
            found = await self.read(partition)
            claim = found.record
            if claim is not None and claim.incarnation == self._incarnation and not claim.released:
                key, released = claim_key(self._consumer, partition), replace(claim, released=True)
                with contextlib.suppress(Fenced):  # another member has it
                    await self._records.take(key, released, revision=found.revision)
            self._may_be_ours.discard(partition)
