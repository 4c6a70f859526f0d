"""Builds a shipper from its configuration, runs it, and stops it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from logpipeline.backlog import asked, backlog_of
from logpipeline.descriptors import files_at_once
from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage
from logpipeline.observe import http
from logpipeline.subjects import ControlSubjects, Subjects
from logpipeline_shipper import checkpoint
from logpipeline_shipper.checkpoint import IntentLog
from logpipeline_shipper.config import ShipperConfig, redactor_of
from logpipeline_shipper.data_folder import DataFolder, DataFolderBusy, boot_id
from logpipeline_shipper.files.discovery import TOO_MANY_FOLDERS, Discovery
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import ScanWatermark
from logpipeline_shipper.files.open_file import DescriptorBudget
from logpipeline_shipper.files.source_filter import SourceFilter
from logpipeline_shipper.kubernetes.pods import (
    ChosenNamespaces,
    NamespacesFile,
    PodCache,
    Reflector,
    collections_of,
)
from logpipeline_shipper.metrics import ShipperMetrics
from logpipeline_shipper.progress import ProgressListener
from logpipeline_shipper.publish import Sender
from logpipeline_shipper.quarantine import Quarantine
from logpipeline_shipper.reconnect import LastAcks, ReconnectCheck
from logpipeline_shipper.resend import Rollbacks
from logpipeline_shipper.shared import ByteBudget, Shared
from logpipeline_shipper.source_manager import TICK_S, SourceManager, SourceOptions
from logpipeline_shipper.status import Health, describe

log = logging.getLogger(__name__)

EXIT_FINE = 0
EXIT_CANNOT_START = 1
EXIT_BROKEN = 3
# Reading and compressing release the interpreter lock while they work.
THREADS_MAX = 2
SKIPPED_LOGGED_MAX = 1000
# Descriptors beside those of log files: connections, who asks for metrics, the own state, and what
# is looked into for a moment.
OTHERS_OPEN = 64
# Reasons that a person can remove: the user of this process lacks the permission.
DENIED = ("EACCES", "EPERM")
READ_OUT_LOOK_S = 0.05


async def run(config: ShipperConfig, stop: asyncio.Event) -> int:
    """Ship until *stop* is set, then finish the batches in flight; return the exit code."""
    try:
        folder = DataFolder.open(config.data, config.pipeline_uid)
    except (DataFolderBusy, OSError) as error:
        return _cannot_start(str(error))
    try:
        return await Shipper(config, folder).run(stop)
    except AddressUnusable as error:
        return _cannot_start(str(error))
    finally:
        folder.close()


class AddressUnusable(Exception):
    """The address for metrics and probes cannot be used."""


class Shipper:
    """All parts of one shipper."""

    def __init__(self, config: ShipperConfig, folder: DataFolder) -> None:
        loop = asyncio.get_running_loop()
        boot = boot_id()
        state = checkpoint.load(folder.path, boot, loop.time())
        self._config = config
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[None] = loop.create_future()
        self._connection = Connection(config.nats)
        js = JetStream(self._connection)
        self._acks = LastAcks(state.acks, self._stream_went_back)
        self._listener = ProgressListener(
            self._connection,
            ControlSubjects(config.control_root),
            partitions=config.partitions,
            rollbacks=Rollbacks(state.rollbacks),
            clock=loop.time,
        )
        self._reconnect = ReconnectCheck(js, self._acks, self._subject_lost, self._listener.ask_all)
        self._intents = IntentLog(folder.path, boot)
        self._checkpoint = checkpoint.CheckpointWriter(folder, self._intents, self._snapshot)
        self._shared = Shared(
            sender=self._made_sender(js),
            budget=ByteBudget(config.in_flight_bytes_max),
            intents=self._intents,
            quarantine=Quarantine(
                folder.path / "quarantine", bytes_max=config.quarantine_bytes_max
            ),
            options=config.batch,
            redactor=redactor_of(config.redaction),
            threads=ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="shipper"),
            spawn=self._spawn,
            changed=self._checkpoint.changed,
            clock=loop.time,
        )
        self._watermark = ScanWatermark(-math.inf)
        self._is_patient = state.was_broken or folder.was_others
        self._manager = SourceManager(
            self._source_options(folder),
            self._shared,
            state,
            self._host_appeared,
            needs_recall=not state.is_complete and bool(config.control_root),
        )
        self._listener.manager = self._manager
        self._pods = PodCache() if config.kubernetes is not None else None
        self._source_filter = self._made_source_filter()
        self._manager.is_skipped = self._source_filter.is_skipped
        self._namespaces = self._namespaces_file()
        # If a file names the namespaces, the pods of each namespace are asked for separately.
        self._chosen: ChosenNamespaces | None = None
        self._health = Health(
            self._connection,
            self._manager,
            self._shared,
            self._checkpoint,
            root=config.subject_root,
        )
        self._metrics = ShipperMetrics(
            self._manager, self._shared, self._listener, self._source_filter
        )
        self._skipped: set[Path] = set()

    def _source_options(self, folder: DataFolder) -> SourceOptions:
        config = self._config
        return SourceOptions(
            subjects=Subjects(config.subject_root, config.partitions),
            installation=folder.installation,
            cluster=config.cluster,
            read_from=config.read_from,
            limits=_limits(config),
            watermark=self._watermark,
            is_compressing=config.batch.compression == "zstd",
            hosts=config.hosts,
        )

    def _made_sender(self, js: JetStream) -> Sender:
        return Sender(
            js,
            self._reconnect,
            ack_timeout_s=self._config.ack_timeout_s,
            on_ack=self._acks.note,
            floor=self._acks.floor,
        )

    def _made_source_filter(self) -> SourceFilter:
        return SourceFilter(
            self._config.rules,
            self._pods,
            on_ship=self._manager.update,
            on_skip=self._manager.stop,
            clock=asyncio.get_running_loop().time,
            files=tuple(host for host in self._config.hosts if host.include),
        )

    async def run(self, stop: asyncio.Event) -> int:
        """Ship until *stop* is set or a part of the shipper fails."""
        code = EXIT_FINE
        async with contextlib.AsyncExitStack() as stack:
            if self._config.http_port is not None:
                server = await self._serve_http(self._config.http_port)
                stack.push_async_callback(server.close)
            if self._config.control_root:
                await self._listener.start()
                await self._connection.listen(
                    ControlSubjects(self._config.control_root).status("shipper"), self._asked
                )
            # Before anything is sent: a saved state without a stop mark means a running shipper.
            await self._checkpoint.save()
            await self._connection.start()
            stack.push_async_callback(self._connection.close)
            for part in (
                self._reconnect.run(),
                self._checkpoint.run(),
                self._listener.run(),
                self._discover(),
                self._tick(),
                *self._follow_kubernetes(),
            ):
                self._spawn(part)
            if await self._until_broken_or(stop):
                code = EXIT_BROKEN
            elif self._config.read_out_s:
                await self._read_out()
            await self._drain()
        return code

    async def _until_broken_or(self, stop: asyncio.Event) -> bool:
        stopping = self._spawn(_wait(stop))
        self._broken.add_done_callback(lambda _: stopping.cancel())
        await asyncio.wait([stopping])
        return self._broken.done()

    async def _read_out(self) -> None:
        """Ship all bytes of the files, to the last one: nothing more is written to them."""
        self._manager.end()
        for listing in Discovery(self._config.hosts, skipped=self._note_skipped).scan():
            self._source_filter.update(listing)
        try:
            async with asyncio.timeout(self._config.read_out_s):
                await self._until_level()
        except TimeoutError:
            log.error(
                "lines are not shipped: the time to read the files to their ends is over",
                extra={"bytes": self._manager.backlog_bytes()},
            )

    async def _until_level(self) -> None:
        while True:
            if self._manager.is_level():
                return
            await asyncio.sleep(READ_OUT_LOOK_S)

    async def _drain(self) -> None:
        """Finish the batches in flight within a deadline, and save the checkpoint."""
        self._shared.is_stopping = True
        running = [source for source in self._manager.sources.values() if source.is_running]
        if running:
            finishing = asyncio.gather(*(source.finish() for source in running))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.drain_s):
                    await finishing
        is_level = not any(source.is_running for source in running)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._shared.threads.shutdown()
        await self._checkpoint.save(is_last=is_level)
        self._manager.release()
        self._intents.close()
        log.info("the shipper has stopped", extra={"finished": is_level})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.critical("a part of the shipper failed; the shipper stops", exc_info=error)
        if not self._broken.done():
            self._broken.set_result(None)

    async def _discover(self) -> None:
        discovery = Discovery(
            self._config.hosts,
            rescan_s=self._config.rescan_s,
            skipped=self._note_skipped,
            on_trouble=self._manager.note_folder,
        )
        await discovery.run(self._source_filter.update, self._manager.hint, self._note_looked)

    def _note_looked(self, until_s: float) -> None:
        self._watermark.until_s = until_s

    def _follow_kubernetes(self) -> list[Coroutine[Any, Any, None]]:
        access, pods = self._config.kubernetes, self._pods
        if access is None or pods is None:
            if self._config.rules.needs_labels:
                log.warning(
                    "rules about pods' labels need --kubernetes; without it, only paths decide"
                )
            return []
        pods.listeners.pod = self._source_filter.changed
        pods.listeners.namespace = self._source_filter.changed_namespace
        if self._config.rules.only is not None and not self._config.pods_of:
            pods.do_without_namespaces()
            self._chosen = ChosenNamespaces(access, self._config.node, pods, self._spawn)
            return []
        found = collections_of(self._config.node, pods, self._config.pods_of)
        return [Reflector(access, each).run() for each in found]

    def _namespaces_file(self) -> NamespacesFile | None:
        """Return the file that names the namespaces to read; it is read before files are found."""
        path = self._config.namespaces_file
        if path is None:
            if self._config.rules.only == frozenset():
                log.warning(
                    "podNamespaces: Selector needs --namespaces; without it, no pod is read"
                )
            return None
        file = NamespacesFile(path, self._source_filter.read_only)
        file.look()
        return file

    async def _tick(self) -> None:
        while True:
            if self._namespaces is not None:
                self._namespaces.look()
            if self._chosen is not None:
                self._chosen.choose(self._source_filter.namespaces())
            self._source_filter.tick()
            if self._watermark.until_s > -math.inf and not self._source_filter.waiting():
                self._manager.note_scanned()
            self._manager.tick()
            self._health.refresh()
            self._metrics.refresh()
            await asyncio.sleep(TICK_S)

    async def _serve_http(self, port: int) -> http.HttpServer:
        host = self._config.http_host
        try:
            server = await http.serve(
                host, port, self._metrics.metrics, self._health.live, self._health.ready
            )
        except OSError as error:
            raise AddressUnusable(
                f"metrics cannot be served on {host}:{port}: {error.strerror}; give another address"
            ) from error
        log.info("metrics and probes are served", extra={"port": server.port})
        return server

    def _snapshot(self) -> checkpoint.Snapshot:
        return checkpoint.Snapshot(
            rows=self._manager.rows(),
            groups=self._manager.groups,
            acks=self._acks.last,
            rollbacks=self._listener.rollbacks.counts,
            unseen=self._manager.unseen,
        )

    def _host_appeared(self, host: str) -> None:
        if self._config.control_root:
            self._spawn(self._listen(host))

    async def _listen(self, host: str) -> None:
        await self._listener.listen(host)
        if self._manager.needs_recall:
            config = self._config
            # After a lost checkpoint an answer is worth a longer wait.
            patience_s = config.recall_lost_s if self._is_patient else config.recall_s
            self._manager.recalled(host, await self._listener.recall(host, patience_s))

    def _subject_lost(self, subject: str, cause: str) -> int:
        return self._manager.doubt_subjects({subject}, cause)

    def _stream_went_back(self, stream: str) -> None:
        log.error(
            "the sequences of the stream went back; what is not collected is sent again",
            extra={"stream": stream},
        )
        self._manager.doubt_stream(self._acks.subjects_of(stream))

    def _asked(self, message: RawMessage) -> None:
        if message.reply:
            self._spawn(self._answer(message))

    async def _answer(self, question: RawMessage) -> None:
        name, behind_s = self._config.nats.name, asked(question.data)
        if behind_s is None:
            answer = describe(self._manager, self._shared, self._health, name)
        else:
            problem = self._health.live() or self._health.ready()
            report = backlog_of(name, problem, self._manager.backlogs(), behind_s)
            if report is None:
                return
            answer = report.encode()
        with contextlib.suppress(NotSent):
            await self._connection.answer(question, answer)

    def _note_skipped(self, path: Path, reason: str) -> None:
        fields = {"path": str(path), "reason": reason}
        if reason in DENIED:
            # However many files are left out on purpose.
            log.warning(
                "a file or folder may not be read, and is tried again; let the shipper's user read "
                "it",
                extra=fields,
            )
        elif reason == TOO_MANY_FOLDERS:
            log.warning(
                "there are too many folders to read all, and new ones are left out; remove or "
                "exclude some",
                extra=fields,
            )
        elif path not in self._skipped and len(self._skipped) < SKIPPED_LOGGED_MAX:
            self._skipped.add(path)
            log.info("a file is left out", extra=fields)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


def _cannot_start(reason: str) -> int:
    log.error("the shipper cannot start", extra={"reason": reason})
    return EXIT_CANNOT_START


def _limits(config: ShipperConfig) -> ReadLimits:
    return ReadLimits(
        batch_bytes=config.batch.bytes_max,
        line_bytes=config.batch.line_bytes_max,
        idle_close_s=config.idle_close_s,
        deleted_bytes=config.deleted_bytes_max,
        deleted_age_s=config.deleted_age_s,
        grace_s=config.rescan_s,
        descriptors=DescriptorBudget(files_at_once(config.open_files_max, besides=OTHERS_OPEN)),
    )
