"""Reports of a collector: to shippers, how far their sources are committed; to people and probes,
its state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from typing import Any

from logpipeline import json_text
from logpipeline.deduplication import counted
from logpipeline.nats.connection import Connection, Listener, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.session import RawMessage
from logpipeline.records import BadRecord, Committed, GoneFolder, Progress, Question, answers
from logpipeline.subjects import BadHost, BadSubject, ControlSubjects
from logpipeline_collector.assignments import AssignmentWatch
from logpipeline_collector.context import Context
from logpipeline_collector.metrics import lag_seconds
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.sink import FOR_ROOM, Removed
from logpipeline_collector.status_question import LossesAsked
from logpipeline_collector.stream_reader import is_unread
from logpipeline_collector.worker import PartitionWorker

log = logging.getLogger(__name__)

UNANSWERED = (NotSent, OutcomeUnknown, ApiError)

# Progress is published at most once a second for each host, and whenever a shipper asks.
PUBLISH_EVERY_S = 1.0
# A shipper that has lost its positions ships nothing until it has an answer.
LISTEN_EVERY_S = 0.1
# Questions of shippers that wait for an answer; a shipper without an answer asks again.
QUESTIONS_MAX = 1000

# A loop that has done no round for this long is stuck.
STUCK_AFTER_S = 60.0
LOOK_EVERY_S = 1.0
STATUS_QUESTIONS_MAX = 100
# Sources with holes that a status names, for each partition; the sum of bytes holds all of them.
MISSING_LISTED_MAX = 50
# Losses that a status lists, for each partition, the newest first; the sum of bytes holds all.
LOSSES_LISTED_MAX = 200
# Lengths of these lists that are tried until the status is longer than a message.
LISTED_MAX = (0, 1, 2, 5, 10, 20, 50, 100, LOSSES_LISTED_MAX)
# Who asks for the losses of one partition gets so many at once.
PAGE_LISTED_MAX = (*LISTED_MAX, 500, 1000, 2000)
# What an answer has beside its text.
HEADERS_BYTES = 1024
# A folder that was lost, and files that were removed for room, are reported long enough for a
# person to notice, and not for ever.
LISTED_S = 86_400


class ProgressReports:
    """Publishes how far sources are committed, and answers shippers that ask. *owned_partitions*
    returns the partitions that are ours now, and *groups* the groups of collectors that there are.
    """

    def __init__(
        self,
        connection: Connection,
        control: ControlSubjects,
        group: str,
        owned_partitions: Callable[[], Iterable[OwnedPartition]],
        groups: Callable[[], tuple[str, ...]],
    ) -> None:
        self._js = JetStream(connection)
        self._connection = connection
        self._control = control
        self._group = group
        self._owned = owned_partitions
        self._groups = groups
        self._published: dict[OwnedPartition, int] = {}
        self._questions: asyncio.Queue[RawMessage] = asyncio.Queue(QUESTIONS_MAX)
        self._listeners: dict[int, Listener] = {}

    async def run(self) -> None:
        """Publish and answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen_forever())
            tasks.create_task(self._publish_forever())
            tasks.create_task(self._answer_forever())

    async def _listen_forever(self) -> None:
        while True:
            await self._listen({owned.partition for owned in self._owned()})
            await asyncio.sleep(LISTEN_EVERY_S)

    async def _publish_forever(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_EVERY_S)
            partitions = list(self._owned())
            for owned in partitions:
                try:
                    await self._publish(owned)
                except NotSent as error:
                    log.debug("progress not published", extra={"reason": str(error)})
            for gone in self._published.keys() - set(partitions):
                del self._published[gone]

    async def _listen(self, partitions: set[int]) -> None:
        for partition in partitions - self._listeners.keys():
            subject = self._control.asks_of_partition(partition)
            self._listeners[partition] = await self._connection.listen(subject, self._asked)
        for partition in self._listeners.keys() - partitions:
            await self._connection.unlisten(self._listeners.pop(partition))

    def _asked(self, message: RawMessage) -> None:
        if message.reply and not self._questions.full():
            self._questions.put_nowait(message)

    async def _publish(self, owned: OwnedPartition) -> None:
        commit, changed = await owned.changed_since(self._published.get(owned, 0))
        by_host: defaultdict[str, list[Committed]] = defaultdict(list)
        for host, source in changed:
            by_host[host].append(source)
        for host, sources in by_host.items():
            subject = self._control.committed(owned.partition, host)
            for message in _messages(self._group, owned, Question(), sources):
                await self._connection.publish(subject, message)
            await asyncio.sleep(0)
        self._published[owned] = commit

    async def _answer_forever(self) -> None:
        while True:
            question = await self._questions.get()
            try:
                await self._answer(question)
            except (*UNANSWERED, BadHost, BadSubject, BadRecord, UnicodeDecodeError) as error:
                log.debug("question not answered", extra={"reason": str(error)})

    async def _answer(self, question: RawMessage) -> None:
        subject = question.subject.decode("utf-8", "surrogateescape")
        partition, host = self._control.read_ask(subject)
        asked = Question.decode(question.data)
        for owned in self._owned():
            if owned.partition == partition:
                # Asked before `known` is read: nothing may be committed between that and the
                # answer, whose sequence would then be newer than its sources.
                end = await self._end_of(owned) if asked.generations is None else 0
                known = await owned.asked(host, asked)
                for message in _messages(self._group, owned, asked, known, self._groups(), end):
                    await self._connection.answer(question, message)

    async def _end_of(self, owned: OwnedPartition) -> int:
        """Return the sequence behind which nothing of the partition was stored when the question
        came. The last delivery does not say it: what was stored since may still be on its way, and
        a shipper that lost its positions would send it under another name.
        """
        info = await self._js.stream_info(owned.stream)
        last = int(info["state"]["last_seq"]) if info is not None else 0
        read = owned.committed.sequence
        is_more = await is_unread(self._js, owned.stream, owned.subjects, read=read, last=last)
        return last if is_more else read


def _messages(
    group: str,
    owned: OwnedPartition,
    question: Question,
    known: Iterable[Committed],
    groups: tuple[str, ...] = (),
    end: int = 0,
) -> list[bytes]:
    """Return the messages that answer *question* with *known*, and name all *groups*. What is to
    be read ends with the sequence *end*, if that is given.
    """
    stream, pending = owned.stream_state, owned.uncommitted_messages
    # With other partitions' messages between, more sequences are to be read than messages.
    pending = max(pending, end - owned.committed.sequence)
    parts = list(answers(question, known))
    return [
        Progress(
            group,
            owned.partition,
            owned.epoch,
            owned.committed_rollbacks,
            sources,
            created=owned.committed.created,
            sequence=owned.committed.sequence,
            pending=pending,
            is_last=number == len(parts),
            begun=owned.begun,
            first=stream.first if stream is not None else 0,
            max_age_s=stream.max_age_s if stream is not None else 0.0,
            unknown=unknown,
            groups=groups,
        ).encode()
        for number, (sources, unknown) in enumerate(parts, 1)
    ]


def live(context: Context, workers: Iterable[PartitionWorker]) -> str | None:
    """Return None while every loop does its rounds, else the name of the one that is stuck.

    Without a connection the loops may wait for it: a restart would not help.
    """
    if not context.connection.is_connected:
        return None
    oldest_s = time.monotonic() - STUCK_AFTER_S
    if context.committer.beat_s < oldest_s:
        return f"the commit loop has been stuck for {STUCK_AFTER_S:.0f} s"
    stuck = [worker.partition for worker in workers if worker.beat_s < oldest_s]
    return f"partitions {stuck} have been stuck for {STUCK_AFTER_S:.0f} s" if stuck else None


def ready(
    context: Context, watch: AssignmentWatch, workers: Iterable[PartitionWorker]
) -> str | None:
    """Return None while every partition that is assigned to us, or that we still have, is owned and
    written, else why.
    """
    if context.connection.problem or not context.connection.is_connected:
        return context.connection.problem or "not connected to NATS"
    if watch.current is None:
        return watch.problem
    for worker in workers:
        problem = problem_of(worker)
        if (worker.is_wanted or worker.owned is not None) and problem:
            return f"partition {worker.partition}: {problem}"
    return watch.problem


def problem_of(worker: PartitionWorker) -> str | None:
    """Return why a partition is not written now; None if it is."""
    if worker.owned is None:
        return worker.problem or "not taken yet"
    return worker.owned.problem or worker.owned.commit_problem or worker.problem


def encoded_report(
    context: Context,
    workers: Collection[PartitionWorker],
    *,
    bytes_max: int,
    known: int = 0,
    listed_max: Iterable[int] = LISTED_MAX,
) -> bytes:
    """Return the collector's state as JSON, with lists so long that it has at most *bytes_max*, of
    the lengths *listed_max*: the sums beside them hold all. The newest *known* losses are left out.
    """
    # From short lists to long ones: the whole of long ones may be hundreds of times too long.
    fitting = b""
    for length in listed_max:
        made = report(context, workers, listed_max=length, known=known)
        text = json_text.dump(made).encode()
        if fitting and len(text) > bytes_max:
            break
        fitting = text
        if not any(_left_out(row) for row in made["partitions"]):
            break
    return fitting


def _left_out(row: dict[str, Any]) -> int:
    return int(row.get("losses_left_out", 0) + row.get("missing_left_out", 0))


def report(
    context: Context,
    workers: Iterable[PartitionWorker],
    *,
    listed_max: int = LOSSES_LISTED_MAX,
    known: int = 0,
) -> dict[str, Any]:
    """Return the collector's state in JSON values, with at most *listed_max* losses behind the
    newest *known* ones, and as many sources with holes, for each partition.
    """
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
            | (_ownership(worker.owned, listed_max, known) if worker.owned else {})
            for worker in workers
            if worker.is_wanted or worker.owned
        ],
    }


def _ownership(owned: OwnedPartition, listed_max: int, known: int) -> dict[str, Any]:
    writer = owned.writer
    missing, losses = writer.missing(), writer.losses()[known:]
    missing_listed = missing[: min(MISSING_LISTED_MAX, listed_max)]
    losses_listed = losses[:listed_max]
    return {
        "epoch": owned.epoch,
        "position": owned.committed.sequence,
        "time_ns": owned.committed.time_ns,
        "read": owned.position.sequence,
        "pending_messages": owned.lag.pending,
        "pending_bytes": counted(owned.lag.bytes),
        "uncommitted_bytes": writer.dirty_bytes,
        "lag_seconds": round(lag_seconds(owned), 3),
        "rollbacks": owned.rollbacks,
        "recovery_warning": owned.warning,
        "gone_folders": [asdict(each) for each in _gone(owned)],
        "missed_messages": owned.missed_messages,
        "missing_bytes": writer.missing_bytes,
        "missing": [
            {"host": host, "source": source, "bytes": count}
            for host, source, count in missing_listed
        ],
        "missing_left_out": len(missing) - len(missing_listed),
        "lost_bytes": writer.lost_bytes,
        "damaged_bytes": writer.damaged_bytes,
        "removed_for_room_bytes": _removed_for_room(writer.removed),
        "losses": [
            {"host": host, "source": source, **loss._asdict()}
            for host, source, loss in losses_listed
        ],
        "losses_left_out": len(losses) - len(losses_listed),
        "duplicates": writer.duplicates,
        "late_ranges": writer.late_ranges,
        "cut_bytes": writer.cut_bytes,
        "contradicted_bytes": writer.contradicted_bytes,
        "forgotten_sources": writer.forgotten_sources,
        "snapshot_problem": owned.snapshot_problem,
        "lines": counted(writer.lines),
        "bytes": writer.bytes,
        "dead_letters": owned.dead_letters,
    }


def _removed_for_room(removed: Removed) -> int:
    """Return the bytes of files that were removed for room, if that was lately."""
    is_lately = removed.for_room_s > time.time() - LISTED_S
    return removed.bytes[FOR_ROOM] if is_lately else 0


def _gone(owned: OwnedPartition) -> tuple[GoneFolder, ...]:
    succession = owned.held.record.succession
    oldest_ns = time.time_ns() - LISTED_S * 10**9
    known = succession.gone if succession is not None else ()
    return tuple(each for each in known if each.time_ns > oldest_ns)


class StatusReports:
    """Answers on the collectors' status subject (`logpipeline status`), and keeps the metrics of
    lag current.
    """

    def __init__(self, context: Context, workers: dict[int, PartitionWorker]) -> None:
        self._context = context
        self._workers = workers
        self._questions: asyncio.Queue[RawMessage] = asyncio.Queue(STATUS_QUESTIONS_MAX)

    async def run(self) -> None:
        """Answer until cancelled."""
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
            connection = self._context.connection
            text = self._answer_to(question.data, connection.max_payload_bytes - HEADERS_BYTES)
            if not text:
                continue
            try:
                await connection.answer(question, text)
            except TooLarge as error:
                log.warning("status not answered", extra={"reason": str(error)})
            except NotSent as error:
                log.debug("status not answered", extra={"reason": str(error)})

    def _answer_to(self, question: bytes, bytes_max: int) -> bytes:
        """Return the answer to *question*, none where another collector owns what it asks for."""
        asked = LossesAsked.decode(question)
        if asked is None:
            return encoded_report(self._context, self._workers.values(), bytes_max=bytes_max)
        worker = self._workers.get(asked.partition)
        is_ours = asked.group == self._context.config.group
        if worker is None or worker.owned is None or not is_ours:
            return b""
        return encoded_report(
            self._context,
            [worker],
            bytes_max=bytes_max,
            known=asked.known,
            listed_max=PAGE_LISTED_MAX,
        )

    async def _look_forever(self) -> None:
        while True:
            for worker in self._workers.values():
                if worker.owned is not None:
                    self._context.metrics.look(worker.owned)
            await asyncio.sleep(LOOK_EVERY_S)
