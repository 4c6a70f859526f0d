"""Who reads which partition, settled by compare-and-swap in the pipeline's key-value bucket. A
lock that expires would let a member that was frozen write on; a claim that was taken over makes
its next write fail.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from logpipeline.consuming.errors import ClaimLost, StateForeign
from logpipeline.consuming.records import Claim, Progress, claim_key
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import BadRecord

log = logging.getLogger(__name__)


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
