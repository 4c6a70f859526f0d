"""What a collector finds when it opens a partition: its own folder and the state bucket, compared.

Three things can have happened to a commit at a crash: nobody knows it, the folder alone knows it,
both know it. Which it was decides whether the next line is written twice, once or never, so it is
decided here, from values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from logpipeline.records import EpochRecord, StreamPosition

NOWHERE = StreamPosition("", 0, 0)


class Source(Enum):
    """Where the positions of a partition's sources are taken from."""

    NOTHING = "nothing was ever committed"
    FOLDER = "our folder is current"
    UNDO = "our last commit came too late: take it back, then look again"
    SNAPSHOT = "another folder went on after ours"


@dataclass(frozen=True, slots=True)
class FolderCommit:
    """The last commit of a folder, and the position of the one before it: `NOWHERE` for a first
    commit, None where the last one can no longer be taken back.
    """

    epoch: int
    position: StreamPosition
    previous: StreamPosition | None
    rollbacks: int = 0


@dataclass(frozen=True, slots=True)
class Recovery:
    """How to go on: with which positions, from where, in which *epoch*; *warning* is what should
    never happen, and did.
    """

    source: Source
    epoch: int
    position: StreamPosition
    rollbacks: int
    warning: str = ""


BUCKET_LOST = "the state bucket lost the partition's record; it is written again from the folder"
BUCKET_OLDER = (
    "the state bucket is older than the folder (was it restored from a copy?); it is written again"
)
FOLDER_OLDER = (
    "the folder is older than the state bucket (was the volume restored from a copy?); messages "
    "are read again from the folder's position"
)
CANNOT_UNDO = (
    "the next owner began before our last commits, and only one can be taken back; lines may stand "
    "in both folders"
)
TWO_OWNERS = "the state bucket names another owner of our epoch: it was restored from a copy"


def recover(
    folder: FolderCommit | None, record: EpochRecord | None, *, is_our_folder: bool
) -> Recovery:
    """Return how to go on; *is_our_folder* says that the record was written by a process of this
    very folder.
    """
    if record is None:
        if folder is None:
            return Recovery(Source.NOTHING, 1, NOWHERE, 0)
        return _keep(folder, folder.epoch + 1, folder.rollbacks, BUCKET_LOST)
    epoch = max(record.epoch, folder.epoch if folder else 0) + 1
    if folder is None:
        return _follow(record, epoch)
    if record.epoch < folder.epoch:
        return _keep(folder, epoch, max(folder.rollbacks, record.rollbacks), BUCKET_OLDER)
    if record.epoch == folder.epoch:
        return _same_epoch(folder, record, epoch, is_our_folder=is_our_folder)
    return _later_epoch(folder, record, epoch, is_our_folder=is_our_folder)


def _keep(folder: FolderCommit, epoch: int, rollbacks: int, warning: str = "") -> Recovery:
    return Recovery(Source.FOLDER, epoch, folder.position, rollbacks, warning)


def _follow(record: EpochRecord, epoch: int, warning: str = "") -> Recovery:
    source = Source.SNAPSHOT if record.position.sequence else Source.NOTHING
    return Recovery(source, epoch, record.position, record.rollbacks, warning)


def _same_epoch(
    folder: FolderCommit, record: EpochRecord, epoch: int, *, is_our_folder: bool
) -> Recovery:
    rollbacks = max(folder.rollbacks, record.rollbacks)
    if not is_our_folder:
        if record.position.sequence > folder.position.sequence:
            return _follow(record, epoch, TWO_OWNERS)
        return _keep(folder, epoch, rollbacks, TWO_OWNERS)
    if _is_same(record.position, folder.position) or _is_same(record.position, folder.previous):
        return _keep(folder, epoch, rollbacks)
    is_ahead = folder.position.sequence > record.position.sequence
    return _keep(folder, epoch, rollbacks, BUCKET_OLDER if is_ahead else FOLDER_OLDER)


def _later_epoch(
    folder: FolderCommit, record: EpochRecord, epoch: int, *, is_our_folder: bool
) -> Recovery:
    starts = {entry.epoch: entry.sequence for entry in record.history}
    next_start = starts.get(folder.epoch + 1)
    ours = folder.position.sequence
    if (
        next_start is not None
        and next_start != ours
        and folder.previous is not None
        and next_start == folder.previous.sequence
    ):
        return Recovery(Source.UNDO, epoch, folder.previous, folder.rollbacks)
    if _is_same(record.position, folder.position):
        return _keep(folder, epoch, record.rollbacks)
    if is_our_folder and starts.get(record.epoch) != record.position.sequence:
        # The last owner was this folder, and committed; the folder does not know it.
        return _keep(folder, epoch, record.rollbacks, FOLDER_OLDER)
    warning = CANNOT_UNDO if next_start is not None and next_start < ours else ""
    return _follow(record, epoch, warning)


def _is_same(position: StreamPosition, other: StreamPosition | None) -> bool:
    if other is None:
        return False
    # Who has read nothing need not know yet of which stream.
    return position == other or position.sequence == other.sequence == 0
