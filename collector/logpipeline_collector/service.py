"""A collector process: makes the parts, runs them, and releases all partitions at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from logpipeline.descriptors import files_at_once
from logpipeline.letter_room import LetterRoom
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection
from logpipeline.nats.jetstream import JetStream
from logpipeline.observe.http import serve
from logpipeline.records import Assignment
from logpipeline_collector.assignments import AssignmentWatch
from logpipeline_collector.config import CollectorConfig
from logpipeline_collector.context import Context
from logpipeline_collector.dead_letters import DeadLetters, GivenUp
from logpipeline_collector.epochs import EpochRecords
from logpipeline_collector.files.output import Descriptors
from logpipeline_collector.files.partition import FileStorage
from logpipeline_collector.folder import Folder, FolderBusy
from logpipeline_collector.groups import GroupsWatch
from logpipeline_collector.intake import Intake
from logpipeline_collector.membership import MemberTaken, membership_of
from logpipeline_collector.metrics import CollectorMetrics
from logpipeline_collector.owned_partition import Committer, OwnedPartition
from logpipeline_collector.reports import ProgressReports, StatusReports, live, ready
from logpipeline_collector.sink import SinkBroken, SinkFailed
from logpipeline_collector.worker import PartitionWorker

log = logging.getLogger(__name__)

# Commits wait for disks, not for processors.
THREADS = 4
# Descriptors beside those of collected files: connections, who asks for metrics, the own folder;
# and for each partition its database, with two files beside it, a folder and the volume.
OTHERS_OPEN, OPEN_PER_PARTITION = 64, 5

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BUSY = 3

# Errors that end the process at once, with a message instead of a traceback.
FATAL = (SinkBroken, SinkFailed, FolderBusy, MemberTaken, OSError)


async def run(config: CollectorConfig, stop: asyncio.Event) -> int:
    """Collect until *stop* is set, and return the process's exit code: 0 after an orderly end, 3
    where another process is this member, 1 where the disk or the state failed.
    """
    try:
        folder = Folder.claim(config.files.folder, config.group, config.member)
    except (FolderBusy, OSError) as error:
        log.error("the collector cannot start", extra={"reason": str(error)})
        return EXIT_BUSY if isinstance(error, FolderBusy) else EXIT_FAILED
    try:
        await Service(config, folder).run(stop)
    except BaseExceptionGroup as group:
        fatal, others = group.split(FATAL)
        if fatal is None or others is not None:
            raise
        for leaf in _leaves(fatal):
            log.error("the collector ends", extra={"reason": str(leaf)})
        return EXIT_BUSY if fatal.subgroup(MemberTaken) is not None else EXIT_FAILED
    finally:
        folder.close()
    return EXIT_OK


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


class Service:
    """The parts of one collector process, and the workers of its partitions."""

    def __init__(self, config: CollectorConfig, folder: Folder) -> None:
        self._config = config
        self._workers: dict[int, PartitionWorker] = {}
        self._worker_tasks: set[asyncio.Task[None]] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._is_stopping = False
        self._context = self._make_context(config, folder)
        context = self._context
        self._watch = AssignmentWatch(
            context.bucket,
            group=config.group,
            partitions=config.partitions,
            changed=self._assigned,
        )
        self._groups = GroupsWatch(context.js, context.bucket)
        self._progress = ProgressReports(
            context.connection, config.control, config.group, self._owned, self._groups.current
        )
        self._given_up = GivenUp(
            context.js,
            stream=config.dead_letter_stream,
            root=config.dead_letter_root,
            room=context.intake.dead_letters.room,
            owned_partitions=self._owned,
            counted=context.metrics.dead_letter,
        )

    def _make_context(self, config: CollectorConfig, folder: Folder) -> Context:
        connection = Connection(config.nats.named(f"{config.group}/{config.member}"))
        js = JetStream(connection)
        bucket = Bucket(js, config.state_bucket)
        metrics = CollectorMetrics()
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="commit")
        others = OTHERS_OPEN + OPEN_PER_PARTITION * config.partitions
        most = files_at_once(config.files.open_files_max, besides=others)
        storage = FileStorage(config.files, Descriptors(most))
        metrics.metrics.watch("open_files", "Files kept open", lambda: storage.open_files)
        room = LetterRoom(
            js,
            config.subjects,
            stream=config.dead_letter_stream,
            root=config.dead_letter_root,
        )
        letters = DeadLetters(js, config.dead_letter_root, room, metrics.dead_letter)
        return Context(
            config=config,
            connection=connection,
            js=js,
            bucket=bucket,
            folder=folder,
            epochs=EpochRecords(
                bucket, group=config.group, member=config.member, incarnation=folder.incarnation
            ),
            membership=membership_of(config, bucket, connection, folder),
            intake=Intake(js, config.subjects, letters),
            committer=Committer(
                executor, interval_s=config.commit_interval_s, commit_bytes=config.commit_bytes
            ),
            executor=executor,
            storage=storage,
            metrics=metrics,
            committed_to=metrics.committed,
            wanted_count=lambda: sum(worker.is_wanted for worker in self._workers.values()),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Collect until *stop* is set, then release all partitions.

        Raises:
            ExceptionGroup: of the errors that ended the process: another process is the member, or
            the disk failed.
        """
        context = self._context
        try:
            await context.connection.start()
            async with self._page(), asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                stopping = tasks.create_task(stop.wait())
                entering = tasks.create_task(context.membership.enter())
                await asyncio.wait([stopping, entering], return_when=asyncio.FIRST_COMPLETED)
                if entering.done():
                    await self._collect(tasks, stopping)
                entering.cancel()
                stopping.cancel()
        finally:
            await context.connection.close()
            context.executor.shutdown()

    async def _collect(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[bool]) -> None:
        context = self._context
        parts = [
            context.committer.run(),
            self._watch.run(),
            self._groups.run(),
            self._progress.run(),
            self._given_up.run(),
            StatusReports(context, self._workers).run(),
        ]
        running = [tasks.create_task(part) for part in parts]
        replaced = tasks.create_task(self._until_replaced())
        for partition in context.storage.partitions():
            self._worker(partition)
        log.info(
            "collector runs",
            extra={"group": self._config.group, "member": self._config.member},
        )
        await asyncio.wait([stopping, replaced], return_when=asyncio.FIRST_COMPLETED)
        # Who took our name has not taken every partition yet, perhaps, and a commit may be under
        # way: the record decides of each, and what it refuses is taken back.
        await self._give_up()
        if replaced.done() and (taken := replaced.result()) is not None:
            raise taken
        await context.membership.leave()
        for task in running:
            task.cancel()

    async def _until_replaced(self) -> MemberTaken | None:
        """Show that we are alive, until we leave, or another process has taken our name."""
        try:
            await self._context.membership.run()
        except MemberTaken as error:
            return error
        return None

    async def _give_up(self) -> None:
        self._is_stopping = True
        for worker in self._workers.values():
            worker.end()
        if self._worker_tasks:
            _, late = await asyncio.wait(self._worker_tasks, timeout=self._config.stop_deadline_s)
            for task in late:
                # The next start takes back what is not committed.
                log.warning(
                    "a partition could not be released in time; the process ends without it"
                )
                task.cancel()

    @contextlib.asynccontextmanager
    async def _page(self) -> AsyncIterator[None]:
        config, context = self._config, self._context
        if config.http_port is None:
            yield
            return
        page = await serve(
            config.http_host,
            config.http_port,
            context.metrics.metrics,
            lambda: live(context, self._workers.values()),
            lambda: ready(context, self._watch, self._workers.values()),
        )
        async with page:
            log.info("metrics and health", extra={"port": page.port})
            yield

    def _assigned(self, assignment: Assignment) -> None:
        if self._is_stopping:
            return
        owned = assignment.of(self._config.member)
        for partition, worker in self._workers.items():
            if partition not in owned:
                worker.want(None)
        for wanted in owned.partitions():
            self._worker(wanted).want(assignment.generation)

    def _worker(self, partition: int) -> PartitionWorker:
        if partition not in self._workers:
            assert self._tasks is not None
            worker = self._workers[partition] = PartitionWorker(self._context, partition)
            task = self._tasks.create_task(worker.run())
            self._worker_tasks.add(task)
            task.add_done_callback(self._worker_tasks.discard)
        return self._workers[partition]

    def _owned(self) -> list[OwnedPartition]:
        return [worker.owned for worker in self._workers.values() if worker.owned is not None]
