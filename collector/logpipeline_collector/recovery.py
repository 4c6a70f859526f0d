"""Compares a partition's folder with the record in the state bucket, and decides how to go on.

A commit that a crash met is in neither of them, in the folder alone, or in both. Which of the three
decides whether the next line is written twice, once or never. So it is decided here, from values
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from logpipeline.records import EpochRecord, Reached, StreamPosition

NOWHERE = StreamPosition("", 0, 0)


class Source(Enum):
    """Origin of the positions of a partition's sources."""

    NOTHING = "nothing was ever committed"
    FOLDER = "our folder is current"
    UNDO = "our last commit came too late: take it back, then look again"
    SNAPSHOT = "another folder went on after ours"
    STREAM = "our folder is gone with what it had, which is read again"


@dataclass(frozen=True, slots=True)
class FolderCommit:
    """The last commit of a folder, with epoch and reach of the one before it. *previous* is None
    where the last one can no longer be taken back.
    """

    epoch: int
    reached: Reached
    previous: tuple[int, Reached] | None

    @property
    def rollbacks(self) -> int:
        """Number of roll-backs of the stream."""
        return self.reached.rollbacks or 0


@dataclass(frozen=True, slots=True)
class Recovery:
    """How to go on: with which positions, from where, in which *epoch*. *warning* names a state
    that should never occur.
    """

    source: Source
    epoch: int
    position: StreamPosition
    rollbacks: int
    warning: str = ""
    is_folder_gone: bool = False


BUCKET_LOST = "the state bucket lost the partition's record; it is written again from the folder"
BUCKET_RESTORED = (
    "the state bucket lost the partition's record; it is written again from the last snapshot, and "
    "lines that its owner wrote after that stand in both folders, unless it comes back"
)
SOURCES_UNKNOWN = (
    "the snapshot of the sources' positions is gone, and so are the messages that held them; lines "
    "that a shipper without positions sends again cannot be recognised, and may stand twice"
)
BUCKET_OLDER = (
    "the state bucket is older than the folder (was it restored from a copy?); it is written again"
)
EPOCHS_ANEW = (
    "the state bucket lost the partition's record, and another collector has read on since, beyond "
    "our folder; lines that ours had after the last snapshot may stand in both folders"
)
FOLDER_OLDER = (
    "the folder is older than the state bucket (was the volume restored from a copy?); messages "
    "are read again from the folder's position"
)
CANNOT_UNDO = (
    "the next owner began before our last commits, and only one can be taken back; lines may stand "
    "in both folders"
)
FOLDER_GONE = (
    "the folder of the partition's last owner, this very collector, is gone: its volume is empty "
    "or another one; spec.collectors.onEmptyVolume says whether messages are read again"
)
UNKNOWN_END = (
    "the state bucket no longer knows the owner that followed our last commits; if it began before "
    "the last of them, lines stand in both folders"
)
TWO_OWNERS = "the state bucket names another owner of our epoch: it was restored from a copy"


def recover(
    folder: FolderCommit | None,
    record: EpochRecord | None,
    *,
    identity: str,
    copied_from: tuple[str, ...] = (),
    member: str = "",
    is_read_again: bool = True,
) -> Recovery:
    """Return how to go on in the folder *identity* of *member*, which was *copied_from* others.
    With *is_read_again*, messages are read again whose lines were in a folder that is gone, as far
    as streams hold them.
    """
    if record is None:
        if folder is None:
            return Recovery(Source.NOTHING, 1, NOWHERE, 0)
        return _keep(folder, folder.epoch + 1, folder.rollbacks, BUCKET_LOST)
    epoch = max(record.epoch, folder.epoch if folder else 0) + 1
    if folder is None:
        is_gone = record.owner == member and record.folder != identity
        return _instead(record, epoch, is_read_again) if is_gone else _follow(record, epoch)
    # A member has one folder: where this is a copy of its last one, that one is left for good.
    is_copy = record.owner == member and record.folder in copied_from
    is_ours = record.folder == identity or is_copy
    if record.epoch < folder.epoch:
        if not is_ours and is_overtaken(folder, record):
            return _follow(record, epoch, EPOCHS_ANEW)
        return _keep(folder, epoch, max(folder.rollbacks, record.rollbacks), BUCKET_OLDER)
    if record.epoch == folder.epoch:
        return _same_epoch(folder, record, epoch, is_ours=is_ours)
    end = _end_of(folder, record, identity, copied_from)
    if end is not None and is_late(folder, end):
        assert folder.previous is not None
        return Recovery(Source.UNDO, epoch, folder.previous[1].position, folder.rollbacks)
    return _later_epoch(folder, record, epoch, is_ours=is_ours, end=end)


def _keep(folder: FolderCommit, epoch: int, rollbacks: int, warning: str = "") -> Recovery:
    return Recovery(Source.FOLDER, epoch, folder.reached.position, rollbacks, warning)


def _follow(record: EpochRecord, epoch: int, warning: str = "") -> Recovery:
    # Behind a roll-back to the stream's beginning the position is 0, and sources are known.
    is_any = record.position.sequence or record.rollbacks
    source = Source.SNAPSHOT if is_any else Source.NOTHING
    return Recovery(source, epoch, record.position, record.rollbacks, warning)


def _instead(record: EpochRecord, epoch: int, is_read_again: bool) -> Recovery:
    """Go on in place of a folder that is gone. Only what was written into it is read again: what
    earlier owners wrote stands in their folders.
    """
    since = record.succession.since if record.succession is not None else record.reached
    if since.is_same(record.reached):
        return _follow(record, epoch)
    if not is_read_again:
        followed = _follow(record, epoch, FOLDER_GONE)
        return replace(followed, is_folder_gone=True)
    return Recovery(Source.STREAM, epoch, since.position, record.rollbacks, FOLDER_GONE, True)


def _same_epoch(
    folder: FolderCommit, record: EpochRecord, epoch: int, *, is_ours: bool
) -> Recovery:
    rollbacks = max(folder.rollbacks, record.rollbacks)
    if not is_ours:
        if folder.reached.is_older(record.reached):
            return _follow(record, epoch, TWO_OWNERS)
        return _keep(folder, epoch, rollbacks, TWO_OWNERS)
    before = folder.previous[1] if folder.previous is not None else folder.reached
    if record.reached.is_same(folder.reached) or record.reached.is_same(before):
        return _keep(folder, epoch, rollbacks)
    is_ahead = record.reached.is_before(folder.reached)
    return _keep(folder, epoch, rollbacks, BUCKET_OLDER if is_ahead else FOLDER_OLDER)


def _later_epoch(
    folder: FolderCommit, record: EpochRecord, epoch: int, *, is_ours: bool, end: Reached | None
) -> Recovery:
    if record.reached.is_same(folder.reached):
        return _keep(folder, epoch, record.rollbacks)
    start = _start_of(record)
    if is_ours and not (start is not None and start.is_same(record.reached)):
        # The last owner worked in this folder and committed, but the folder does not have the
        # commit.
        return _keep(folder, epoch, record.rollbacks, FOLDER_OLDER)
    if end is None:
        # A commit that cannot be taken back any more was rotated since, so the bucket has it.
        return _follow(record, epoch, UNKNOWN_END if folder.previous is not None else "")
    return _follow(record, epoch, CANNOT_UNDO if end.is_before(folder.reached) else "")


def is_outdated(folder: FolderCommit | None, record: EpochRecord | None) -> bool:
    """Return whether *record* is older than the last commit of *folder*: a replica lags, or the
    bucket was lost or restored. It does not say whether that commit came too late.
    """
    return folder is not None and (record is None or record.epoch < folder.epoch)


def is_overtaken(folder: FolderCommit, record: EpochRecord) -> bool:
    """Return whether *record*, of a lower epoch than *folder*, has more. An older copy of the
    bucket never has: epochs count anew since the bucket was lost.
    """
    return folder.reached.is_older(record.reached)


def is_late(folder: FolderCommit, end: Reached) -> bool:
    """Return whether the folder's last commit is void, if the owner of the next epoch began at
    *end*: then that owner reads everything that the commit holds.
    """
    if folder.previous is None or not end.is_before(folder.reached):
        return False
    epoch, before = folder.previous
    return epoch < folder.epoch or not before.is_before(end)


def _end_of(
    folder: FolderCommit, record: EpochRecord, identity: str, copied_from: tuple[str, ...]
) -> Reached | None:
    """Return where the next owner after the folder's last commit began; None if unknown."""
    known = record.succession
    for name in (identity, *copied_from):
        former = known.of(name) if known is not None else None
        if former is not None and former.epoch == folder.epoch:
            return former.end
    former = known.of(identity) if known is not None else None
    if former is not None and former.epoch > folder.epoch:
        # The folder was compared with the record of that time before it took that epoch.
        return folder.reached
    starts = {entry.epoch: entry.sequence for entry in record.history}
    return _sequence_only(starts.get(folder.epoch + 1))


def _start_of(record: EpochRecord) -> Reached | None:
    if record.succession is not None:
        return record.succession.start
    starts = {entry.epoch: entry.sequence for entry in record.history}
    return _sequence_only(starts.get(record.epoch))


def _sequence_only(sequence: int | None) -> Reached | None:
    return None if sequence is None else Reached(StreamPosition("", sequence, 0), None)
