"""Epoch records of a group of collectors: who owns a partition, how far it is committed, and which
folders had it before. A collector that is fenced must never write again in its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from logpipeline.group.ownership import HeldRecord, OwnerRecords, RecordFormat, StoredRecord
from logpipeline.nats.bucket import Bucket, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
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
    folder_of,
)

StoredEpoch = StoredRecord[EpochRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The collector that takes a partition over, its epoch, and how far it was read before."""

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
    """Return the record that *successor* writes in place of the *former* one. With *is_beginning*,
    the group begins behind what was reached, for good. *gone* is the former folder, where it is
    lost.
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
        missed_messages=former.missed_messages,
        refused=former.refused,
        succession=_succession(former, successor, gone),
        # A successor whose position goes back reads again messages that may be older than those
        # that were passed.
        passed=former.passed if position == former.position else None,
    )


def _succession(former: EpochRecord, successor: Successor, gone: GoneFolder | None) -> Succession:
    # Former owners are kept for each folder that may come back, and not for each epoch. They decide
    # which of the folder's files count, and a folder may stay away for any number of epochs.
    known = former.succession
    since = known.since if known is not None else None
    ended = Former(former.owner, former.folder, former.epoch, since, end_of(former, successor))
    others = known.former if known is not None else ()
    lost = (*(known.gone if known is not None else ()), *([gone] if gone is not None else ()))
    kept = (*(each for each in others if each.folder != ended.folder), ended)
    is_same_folder = folder_of(successor.incarnation) == former.folder
    return Succession(
        successor.reached,
        since if is_same_folder and since is not None else successor.reached,
        kept[-FORMER_FOLDERS_MAX:],
        lost[-GONE_FOLDERS_MAX:],
    )


def end_of(former: EpochRecord, successor: Successor) -> Reached:
    """Return behind what the commits of the *former* owner's folder do not count."""
    is_same_folder = folder_of(successor.incarnation) == former.folder
    # Where this folder had a higher epoch, the record may be an older copy instead, whose owner
    # has committed more: none of that is taken back.
    had_one_epoch = successor.epoch == former.epoch + 1 and not is_same_folder
    if had_one_epoch and not successor.reached.is_older(former.reached):
        # Two folders had one epoch: the bucket was lost, and epochs count anew. What the former
        # owner committed behind its record is in the successor's folder, or is read next.
        return former.reached
    return successor.reached


def _decoded(entry: Entry) -> EpochRecord:
    return EpochRecord.decode(entry.value, entry.header(SUCCESSION_HEADER))


def _headers(record: EpochRecord) -> dict[str, str]:
    if record.succession is None:
        return {}
    return {SUCCESSION_HEADER: record.succession.encode()}


def _behind(position: StreamPosition, passed: StreamPosition | None) -> StreamPosition | None:
    return passed if passed is not None and passed.sequence > position.sequence else None


def at_most(sequence: int, went_back_to: int | None) -> int:
    """Return how much of the stream up to *sequence* is still the same after it *went_back_to* a
    sequence (None: it did not).
    """
    return sequence if went_back_to is None else min(sequence, went_back_to)


FORMAT = RecordFormat(_decoded, _headers)


class EpochRecords:
    """The epoch records of a group."""

    def __init__(self, bucket: Bucket, *, group: str, member: str, incarnation: str) -> None:
        self._records = OwnerRecords(bucket, FORMAT)
        self._group = group
        self._member = member
        self._incarnation = incarnation

    async def read(self, partition: int) -> StoredEpoch:
        """Return the record of *partition* as it is now.

        Raises:
            BadRecord: the key holds something else.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        return await self._records.read(epoch_key(self._group, partition))

    async def take_over(
        self,
        partition: int,
        seen: StoredEpoch,
        *,
        epoch: int,
        assignment: int,
        reached: Reached,
        is_beginning: bool = False,
        gone: GoneFolder | None = None,
    ) -> HeldEpoch:
        """Become the owner in *epoch*, and go on behind what was *reached*. With *is_beginning*,
        the group begins there, for good. *gone* is the folder of the last owner, where it is lost.

        Raises:
            Fenced: the record is no longer the one that was *seen*.
            NotSent, OutcomeUnknown, ApiError: see `OwnerRecords.take`.
        """
        successor = Successor(
            member=self._member,
            incarnation=self._incarnation,
            epoch=epoch,
            assignment=assignment,
            reached=reached,
        )
        record = succeed(seen.record, successor, is_beginning=is_beginning, gone=gone)
        key = epoch_key(self._group, partition)
        return HeldEpoch(await self._records.take(key, record, revision=seen.revision))

    async def let_go(self, partition: int, seen: StoredEpoch, reached: Reached) -> None:
        """Mark a record of our own dead predecessor as released behind what it *reached*.

        Raises:
            Fenced: another process has written it since.
        """
        assert seen.record is not None
        record = replace(
            seen.record,
            position=reached.position,
            rollbacks=reached.rollbacks or 0,
            released=True,
            # As in `succeed`.
            passed=seen.record.passed if reached.position == seen.record.position else None,
        )
        key = epoch_key(self._group, partition)
        await self._records.take(key, record, revision=seen.revision)


class HeldEpoch:
    """A partition's epoch record while it is ours."""

    def __init__(self, held: HeldRecord[EpochRecord]) -> None:
        self._held = held

    @property
    def record(self) -> EpochRecord:
        """The record as it was written last."""
        return self._held.record

    async def advance(
        self,
        position: StreamPosition,
        *,
        rollbacks: int,
        assignment: int,
        lost_bytes: int,
        missing_bytes: int,
        missed_messages: int = 0,
        refused: tuple[int, ...] = (),
        went_back_to: int | None = None,
    ) -> None:
        """Write how far the partition is committed; return only when that is certain. Where the
        stream *went_back_to* a sequence, other messages stand behind it now: the snapshot does not
        describe them, so that they must not be trimmed, and the group does not leave them out.

        Raises:
            Fenced: the partition is no longer ours, and this commit must not be reported.
        """
        await self._held.change(
            lambda record: replace(
                record,
                position=position,
                rollbacks=rollbacks,
                assignment=assignment,
                lost_bytes=lost_bytes,
                missing_bytes=missing_bytes,
                missed_messages=missed_messages,
                refused=refused,
                snapshot_at=at_most(record.snapshot_at, went_back_to),
                begun=at_most(record.begun, went_back_to),
                passed=None if went_back_to is not None else _behind(position, record.passed),
            )
        )

    async def note_passed(self, passed: StreamPosition) -> None:
        """Write that the partition has nothing between its position and *passed*.

        Raises:
            Fenced: the partition is no longer ours.
        """
        await self._held.change(lambda record: replace(record, passed=passed))

    async def point_to_snapshot(self, snapshot: int, at: int) -> None:
        """Write where the newest snapshot of the sources' positions is."""
        await self._held.change(lambda record: replace(record, snapshot=snapshot, snapshot_at=at))

    async def look(self) -> None:
        """Look at the record, if the bucket can be read now.

        Raises:
            Fenced: it is another's, or lost.
        """
        try:
            found = await self._held.read()
        except (NotSent, OutcomeUnknown, ApiError):
            return
        # An older one may be a replica's that lags, and the next commit decides.
        if found is None or found.epoch > self.record.epoch:
            raise self._held.fenced_by(found)

    async def begin_behind(self, position: StreamPosition) -> None:
        """Write that nothing is known of sources before *position*, where a group begins there:
        shippers do not send again what was stored up to it.
        """
        await self._held.change(
            lambda record: replace(record, begun=position.sequence, begun_ns=position.time_ns)
        )

    async def release(self) -> None:
        """Write that a successor may begin at once."""
        await self._held.change(lambda record: replace(record, released=True))
