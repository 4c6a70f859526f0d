"""What a collector answers when somebody asks how it is: `logpipeline status`, and the probes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from logpipeline.nats.connection import NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.records import GoneFolder
from logpipeline_collector.assignments import AssignmentWatch
from logpipeline_collector.context import Context
from logpipeline_collector.metrics import lag_seconds
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.worker import PartitionWorker

log = logging.getLogger(__name__)

# A loop that has not come round for so long does not come round any more.
STUCK_AFTER_S = 60.0
LOOK_EVERY_S = 1.0
QUESTIONS_MAX = 100
# Sources with holes that are told by name, per partition; their bytes are all in the sum.
MISSING_TOLD_MAX = 50
# Losses that are told, per partition, the newest first; their bytes are all in the sum.
LOSSES_TOLD_MAX = 200
# Long enough that a person sees that a folder was gone, and not for ever.
GONE_TOLD_S = 86_400


def live(context: Context, workers: Iterable[PartitionWorker]) -> str | None:
    """Return None while every loop comes round, else which does not.

    Without a connection they may wait for it: a restart would bring nothing.
    """
    if not context.connection.is_connected:
        return None
    oldest_s = time.monotonic() - STUCK_AFTER_S
    if context.committer.beat_s < oldest_s:
        return f"no commit was looked for in {STUCK_AFTER_S:.0f} s"
    stuck = [worker.partition for worker in workers if worker.beat_s < oldest_s]
    return f"partitions {stuck} stand still since {STUCK_AFTER_S:.0f} s" if stuck else None


def ready(
    context: Context, watch: AssignmentWatch, workers: Iterable[PartitionWorker]
) -> str | None:
    """Return None while all that is assigned to us is ours and archived, else what is not."""
    if context.connection.problem or not context.connection.is_connected:
        return context.connection.problem or "not connected to NATS"
    if watch.current is None:
        return watch.problem
    for worker in workers:
        problem = problem_of(worker)
        if worker.is_wanted and problem:
            return f"partition {worker.partition}: {problem}"
    return watch.problem


def problem_of(worker: PartitionWorker) -> str | None:
    """Return why a partition is not archived now, None if it is."""
    if worker.owned is None:
        return worker.problem or "not taken yet"
    return worker.owned.problem or worker.owned.commit_problem or worker.problem


def report(context: Context, workers: Iterable[PartitionWorker]) -> dict[str, Any]:
    """Return the collector's state as JSON."""
    config = context.config
    return {
        "component": "collector",
        "group": config.group,
        "member": config.member,
        "incarnation": context.folder.incarnation,
        "open_files": context.storage.open_files,
        "dead_letters_not_kept": [
            {"host": host, "messages": gone.messages, "bytes": gone.bytes}
            for host, gone in context.intake.dead_letters.not_kept.items()
        ],
        "partitions": [
            {"partition": worker.partition, "problem": problem_of(worker)}
            | (_ownership(worker.owned) if worker.owned else {})
            for worker in workers
            if worker.is_wanted or worker.owned
        ],
    }


def _ownership(owned: OwnedPartition) -> dict[str, Any]:
    writer = owned.writer
    return {
        "epoch": owned.epoch,
        "position": owned.committed.sequence,
        "time_ns": owned.committed.time_ns,
        "read": owned.position.sequence,
        "pending_messages": owned.lag.pending,
        "pending_bytes": owned.lag.bytes,
        "uncommitted_bytes": writer.dirty_bytes,
        "lag_seconds": round(lag_seconds(owned), 3),
        "rollbacks": owned.rollbacks,
        "recovery_warning": owned.warning,
        "gone_folders": [asdict(each) for each in _gone(owned)],
        "missed_messages": owned.missed.count,
        "missing_bytes": writer.missing_bytes,
        "missing": [
            {"host": host, "source": source, "bytes": count}
            for host, source, count in writer.missing()[:MISSING_TOLD_MAX]
        ],
        "lost_bytes": writer.lost_bytes,
        "damaged_bytes": writer.damaged_bytes,
        "losses": [
            {"host": host, "source": source, **loss._asdict()}
            for host, source, loss in writer.losses()[:LOSSES_TOLD_MAX]
        ],
        "duplicates": writer.duplicates,
        "late_ranges": writer.late_ranges,
        "cut_bytes": writer.cut_bytes,
        "contradicted_bytes": writer.contradicted_bytes,
        "lines": writer.lines,
        "bytes": writer.bytes,
        "dead_letters": owned.dead_letters,
    }


def _gone(owned: OwnedPartition) -> tuple[GoneFolder, ...]:
    succession = owned.held.record.succession
    oldest_ns = time.time_ns() - GONE_TOLD_S * 10**9
    known = succession.gone if succession is not None else ()
    return tuple(each for each in known if each.time_ns > oldest_ns)


class StatusAnswers:
    """Answers questions on the collectors' status subject, and keeps the lags current."""

    def __init__(self, context: Context, workers: dict[int, PartitionWorker]) -> None:
        self._context = context
        self._workers = workers
        self._questions: asyncio.Queue[RawMessage] = asyncio.Queue(QUESTIONS_MAX)

    async def run(self) -> None:
        """Answer for ever."""
        connection = self._context.connection
        subject = self._context.config.control.status("collector")
        listener = await connection.listen(subject, self._asked)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_forever())
                tasks.create_task(self._answer_forever())
        finally:
            await connection.unlisten(listener)

    def _asked(self, message: RawMessage) -> None:
        if message.reply and not self._questions.full():
            self._questions.put_nowait(message)

    async def _answer_forever(self) -> None:
        while True:
            question = await self._questions.get()
            text = json.dumps(report(self._context, self._workers.values()))
            try:
                await self._context.connection.answer(question, text.encode())
            except NotSent as error:
                log.debug("status not answered", extra={"reason": str(error)})

    async def _look_forever(self) -> None:
        while True:
            for worker in self._workers.values():
                if worker.owned is not None:
                    self._context.metrics.look(worker.owned)
            await asyncio.sleep(LOOK_EVERY_S)
