"""The one thing that makes an owner: a compare-and-swap on the partition's epoch record. Who loses
it must never write again in that epoch.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import (
    EPOCH_HISTORY_MAX,
    FORMER_FOLDERS_MAX,
    GONE_FOLDERS_MAX,
    SUCCESSION_HEADER,
    BadRecord,
    EpochRecord,
    EpochStart,
    Former,
    GoneFolder,
    Reached,
    StreamPosition,
    Succession,
    epoch_key,
    folder_of,
)

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0


# What it tells of former owners decides later what of their folders counts, so it is kept for each
# folder that may come back, and not for each epoch: a folder may stay away for any number of them.
@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """Who takes a partition over, in which epoch, and how far it was read before."""

    member: str
    incarnation: str
    epoch: int
    assignment: int
    reached: Reached


def succeed(
    former: EpochRecord | None,
    successor: Successor,
    *,
    is_beginning: bool = False,
    gone: GoneFolder | None = None,
) -> EpochRecord:
    """Return the record that *successor* writes in place of the *former* one; where *is_beginning*,
    the group begins behind what was reached, for good. With *gone* the former folder is.
    """
    position = successor.reached.position
    record = EpochRecord(
        epoch=successor.epoch,
        owner=successor.member,
        incarnation=successor.incarnation,
        assignment=successor.assignment,
        position=position,
        rollbacks=successor.reached.rollbacks or 0,
        history=(EpochStart(successor.epoch, position.sequence),),
        begun=position.sequence if is_beginning else 0,
        begun_ns=position.time_ns if is_beginning else 0,
        succession=Succession(successor.reached, successor.reached),
    )
    if former is None:
        return record
    # A snapshot describes sources beyond what is read again: with it, all of that would be cut.
    is_behind = gone is not None and gone.again_from > 0
    return replace(
        record,
        snapshot=0 if is_behind else former.snapshot,
        snapshot_at=0 if is_behind else former.snapshot_at,
        history=(*former.history, *record.history)[-EPOCH_HISTORY_MAX:],
        begun=record.begun if is_beginning else former.begun,
        begun_ns=record.begun_ns if is_beginning else former.begun_ns,
        lost_bytes=former.lost_bytes,
        missing_bytes=former.missing_bytes,
        refused=former.refused,
        succession=_succession(former, successor, gone),
    )


def _succession(former: EpochRecord, successor: Successor, gone: GoneFolder | None) -> Succession:
    known = former.succession
    since = known.since if known is not None else None
    ended = Former(former.owner, former.folder, former.epoch, since, successor.reached)
    others = known.former if known is not None else ()
    told = (*(known.gone if known is not None else ()), *([gone] if gone is not None else ()))
    kept = (*(each for each in others if each.folder != ended.folder), ended)
    is_same_folder = folder_of(successor.incarnation) == former.folder
    return Succession(
        successor.reached,
        since if is_same_folder and since is not None else successor.reached,
        kept[-FORMER_FOLDERS_MAX:],
        told[-GONE_FOLDERS_MAX:],
    )


class Fenced(Exception):
    """The partition is no longer ours: somebody took it over, or the bucket went back."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An epoch record with the revision at which it was read; without a record, revision 0."""

    record: EpochRecord | None
    revision: int


class EpochRecords:
    """The epoch records of a group."""

    def __init__(self, bucket: Bucket, *, group: str, member: str, incarnation: str) -> None:
        self._bucket = bucket
        self._group = group
        self._member = member
        self._incarnation = incarnation

    async def read(self, partition: int) -> Seen:
        """Return the record of *partition* as it is now.

        Raises:
            BadRecord: there is something else.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        return _seen(await self._bucket.get(epoch_key(self._group, partition)))

    async def take_over(
        self,
        partition: int,
        seen: Seen,
        *,
        epoch: int,
        assignment: int,
        reached: Reached,
        is_beginning: bool = False,
        gone: GoneFolder | None = None,
    ) -> HeldEpoch:
        """Become the owner in *epoch*, going on behind what was *reached*; where *is_beginning*,
        the group begins there, for good. With *gone* the folder of the last owner is.

        Raises:
            Fenced: the record is no longer the one that was *seen*.
            NotSent, OutcomeUnknown, ApiError: nobody knows; read again. Where it did succeed, the
            next attempt finds our own incarnation in the record.
        """
        successor = Successor(
            member=self._member,
            incarnation=self._incarnation,
            epoch=epoch,
            assignment=assignment,
            reached=reached,
        )
        record = succeed(seen.record, successor, is_beginning=is_beginning, gone=gone)
        held = HeldEpoch(self._bucket, epoch_key(self._group, partition), record, seen.revision)
        await held.take()
        return held

    async def let_go(self, partition: int, seen: Seen, reached: Reached) -> None:
        """Mark a record of our own dead predecessor as released behind what it *reached*.

        Raises:
            Fenced: somebody else has written it since.
        """
        assert seen.record is not None
        record = replace(
            seen.record,
            position=reached.position,
            rollbacks=reached.rollbacks or 0,
            released=True,
        )
        held = HeldEpoch(self._bucket, epoch_key(self._group, partition), record, seen.revision)
        await held.take()


class HeldEpoch:
    """A partition's record while it is ours; writes follow one another, each fully known."""

    def __init__(self, bucket: Bucket, key: str, record: EpochRecord, revision: int) -> None:
        self.record = record
        self._bucket = bucket
        self._key = key
        self._revision = revision
        self._lock = asyncio.Lock()

    async def take(self) -> None:
        """Write the record for the first time, once."""
        try:
            self._revision = await self._bucket.swap(
                self._key,
                self.record.encode(),
                revision=self._revision,
                headers=_headers(self.record),
            )
        except Conflict as error:
            raise Fenced(str(error)) from error

    async def advance(
        self,
        position: StreamPosition,
        *,
        rollbacks: int,
        assignment: int,
        lost_bytes: int,
        missing_bytes: int,
        refused: tuple[int, ...] = (),
    ) -> None:
        """Write how far the partition is committed; returns only when that is certain.

        Raises:
            Fenced: the partition is no longer ours, and this commit is not to be told to anybody.
        """
        async with self._lock:
            await self._write(
                replace(
                    self.record,
                    position=position,
                    rollbacks=rollbacks,
                    assignment=assignment,
                    lost_bytes=lost_bytes,
                    missing_bytes=missing_bytes,
                    refused=refused,
                )
            )

    async def point_to_snapshot(self, snapshot: int, at: int) -> None:
        """Write where the newest snapshot of the sources' positions is."""
        async with self._lock:
            await self._write(replace(self.record, snapshot=snapshot, snapshot_at=at))

    async def look(self) -> None:
        """Look at the record, if it can be seen now.

        Raises:
            Fenced: it is another's, or lost.
        """
        async with self._lock:
            try:
                found = _seen(await self._bucket.get(self._key)).record
            except (NotSent, OutcomeUnknown, ApiError):
                return
            except BadRecord as error:
                raise Fenced(f"the epoch record was overwritten: {error}") from error
            # An older one may be a replica's that lags, and the next commit decides.
            if found is None or found.epoch > self.record.epoch:
                raise Fenced(_why(found, self.record))

    async def begin_behind(self, position: StreamPosition) -> None:
        """Write that of sources before *position* nothing is known, as where a group begins there:
        shippers do not send again what was stored up to it.
        """
        async with self._lock:
            await self._write(
                replace(self.record, begun=position.sequence, begun_ns=position.time_ns)
            )

    async def release(self) -> None:
        """Write that a successor may begin at once."""
        async with self._lock:
            await self._write(replace(self.record, released=True))

    async def _write(self, wanted: EpochRecord) -> None:
        if wanted == self.record:
            return
        value, headers = wanted.encode(), _headers(wanted)
        wait_s = RETRY_FIRST_S
        while True:
            try:
                self._revision = await self._bucket.swap(
                    self._key, value, revision=self._revision, headers=headers
                )
                break
            except (Conflict, OutcomeUnknown) as error:
                if await self._is_written(value, error):
                    break
            except (NotSent, ApiError) as error:
                log.debug("epoch record not written", extra={"reason": str(error)})
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
        self.record = wanted

    async def _is_written(self, value: bytes, cause: Exception) -> bool:
        # Whether a swap without an answer happened is read from the record itself.
        try:
            entry = await self._bucket.get(self._key)
            found = _seen(entry)
        except (NotSent, OutcomeUnknown, ApiError):
            return False
        except BadRecord as error:
            raise Fenced(f"the epoch record was overwritten: {error}") from error
        if entry is None or not self._is_ours(found.record):
            raise Fenced(_why(found.record, self.record)) from cause
        # Nobody else writes in our epoch: an own write of which we do not know, or an older state,
        # read from a replica that lags or from a bucket that was restored. If the swap at its
        # revision succeeds, it was the last, and ours stands again.
        if entry.revision < self._revision:
            log.warning("the state bucket shows an older record of ours", extra={"key": self._key})
        self._revision = entry.revision
        return entry.value == value

    def _is_ours(self, found: EpochRecord | None) -> bool:
        return found is not None and (found.epoch, found.incarnation) == (
            self.record.epoch,
            self.record.incarnation,
        )


def _why(found: EpochRecord | None, ours: EpochRecord) -> str:
    if found is None:
        return "the state bucket lost the partition's record"
    if found.epoch < ours.epoch:
        return f"the state bucket went back to epoch {found.epoch}, ours was {ours.epoch}"
    return f"{found.owner} owns the partition since epoch {found.epoch}, ours was {ours.epoch}"


def _seen(entry: Entry | None) -> Seen:
    if entry is None:
        return Seen(None, 0)
    record = EpochRecord.decode(entry.value, entry.header(SUCCESSION_HEADER))
    return Seen(record, entry.revision)


def _headers(record: EpochRecord) -> dict[str, str]:
    if record.succession is None:
        return {}
    return {SUCCESSION_HEADER: record.succession.encode()}
