"""Brings a partition's folder in line with the state bucket, so that its files hold what is
committed and nothing else, whether the partition is ours or no longer.
"""

from __future__ import annotations

import logging
from functools import partial

from logpipeline.records import EpochRecord, Reached
from logpipeline_collector.archive.partition import PartitionArchive
from logpipeline_collector.context import Context
from logpipeline_collector.recovery import FolderCommit, Recovery, Source, recover

log = logging.getLogger(__name__)


def settle(
    context: Context, partition: int, archive: PartitionArchive, record: EpochRecord | None
) -> Recovery:
    """Take back what came too late, and return how to go on. Opening the archive has already
    removed what was never committed.
    """
    compare = partial(
        recover,
        record=record,
        identity=context.folder.identity,
        member=context.config.member,
        is_read_again=context.config.on_empty_volume == "Reread",
    )
    found = compare(_last_commit(archive))
    if found.source is Source.UNDO:
        log.info("last commit taken back", extra={"partition": partition})
        archive.undo()
        found = compare(_last_commit(archive, can_undo=False))
    if found.warning:
        context.metrics.warnings.labels(partition).inc()
        log.warning(found.warning, extra={"partition": partition, "epoch": found.epoch})
    return found


async def tidy(context: Context, partition: int, *, is_wanted: bool) -> None:
    """Settle a partition that this folder has files of; if it *is_wanted* no more, let it go too.

    Raises:
        NotSent, OutcomeUnknown, ApiError, ArchiveBusy, Fenced: not now; try again.
    """
    archive = context.open_archive(partition)
    try:
        seen = await context.epochs.read(partition)
        found = settle(context, partition, archive, seen.record)
        record = seen.record
        if record is None or is_wanted or record.released:
            return
        if context.folder.is_ours(record.incarnation):
            reached = Reached(found.position, found.rollbacks)
            await context.epochs.let_go(partition, seen, reached)
            log.info("partition of our predecessor released", extra={"partition": partition})
    finally:
        archive.close()


def _last_commit(archive: PartitionArchive, *, can_undo: bool = True) -> FolderCommit | None:
    last = archive.committed()
    if last is None:
        return None
    previous = last.previous if can_undo else None
    return FolderCommit(last.epoch, last.reached, previous)
