"""Runs a reader in fshipper's way: from messages to files, at most once, with or without JetStream.

Nothing is acknowledged and no position is kept, as in fshipper: what is published while nobody
listens is lost, unless a push consumer keeps it. A reader that loses nothing is the collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from logpipeline.nats.connection import Connection, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.observe import http
from logpipeline.observe.metrics import Metrics
from logpipeline_collector.fshipper.config import ReaderConfig
from logpipeline_collector.fshipper.files import DayFiles, SyncFailed
from logpipeline_collector.fshipper.intake import Intake
from logpipeline_collector.fshipper.writing import Writer

log = logging.getLogger(__name__)

EXIT_FINE = 0
EXIT_CANNOT_START = 1
EXIT_BROKEN = 3


async def run(config: ReaderConfig, stop: asyncio.Event) -> int:
    """Write until *stop* is set, then what has come; return the process's exit code."""
    try:
        config.directory.mkdir(parents=True, exist_ok=True)
        return await Reader(config).run(stop)
    except OSError as error:
        log.error("the reader cannot start", extra={"reason": str(error)})
        return EXIT_CANNOT_START
    except SyncFailed as error:
        log.critical("lines cannot be made durable", extra={"reason": str(error)})
        return EXIT_BROKEN


class Reader:
    """All parts of one reader, wired."""

    def __init__(self, config: ReaderConfig) -> None:
        self._config = config
        self._connection = Connection(config.nats)
        self._intake = Intake(config.subject, bytes_max=config.buffer_bytes_max)
        self._files = DayFiles(
            config.directory, config.pattern, open_files_max=config.open_files_max
        )
        self._writer = Writer(self._intake, self._files)
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> int:
        """Write until *stop* is set, then all that has come.

        Raises:
            SyncFailed: the disk does not keep what it took.
            OSError: metrics cannot be served.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._config.http_port is not None:
                stack.push_async_callback((await self._serve_http(self._config.http_port)).close)
            for subject in self._config.subscriptions():
                await self._connection.listen(subject, self._take)
                log.info("waiting for lines", extra={"subject": subject})
            await self._connection.start()
            stack.push_async_callback(self._connection.close)
            writing = asyncio.create_task(self._writer.run())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([writing, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            # Whatever came until the connection ended is written.
            await self._connection.close()
            self._writer.stop()
            await writing
        log.info("the reader has stopped", extra={"lines": self._intake.lines})
        return EXIT_FINE

    def _take(self, message: RawMessage) -> None:
        asking = self._intake.take(message)
        self._writer.wake()
        if asking is not None:
            answer = asyncio.create_task(self._answer(asking.decode("utf-8", "replace")))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)

    async def _answer(self, subject: str) -> None:
        # A consumer with flow control goes on only when it hears of us; no line hangs on it.
        with contextlib.suppress(NotSent):
            await self._connection.publish(subject, b"")

    async def _serve_http(self, port: int) -> http.HttpServer:
        server = await http.serve(
            self._config.http_host, port, self._metrics(), lambda: None, self._ready
        )
        log.info("metrics and probes are served", extra={"port": server.port})
        return server

    def _ready(self) -> str | None:
        if not self._connection.is_connected:
            return self._connection.problem or "not connected to NATS yet"
        return self._connection.problem or self._writer.problem

    def _metrics(self) -> Metrics:
        intake = self._intake
        reads: list[tuple[str, str, Callable[[], float]]] = [
            ("lines", "Messages taken in.", lambda: intake.lines),
            ("bytes", "Bytes written to files.", lambda: self._writer.bytes),
            ("waiting_bytes", "Bytes that wait for the disk.", lambda: intake.size),
            ("dropped", "Messages dropped: too fast for the disk.", lambda: intake.dropped),
            ("undelivered", "Messages sent that did not reach us.", lambda: intake.undelivered),
            ("refused", "Messages of no host.", lambda: sum(intake.refused.values())),
            ("removed_files", "Old files removed.", lambda: self._files.removed),
            ("sessions", "Connections made.", lambda: self._connection.sessions),
        ]
        made = Metrics("fshipper")
        for name, text, read in reads:
            made.watch(name, text, read)
        return made
