"""A collector of several workers: it holds the folder and the member's name for all of them, keeps
them running, and says on one page how they are. It reads and writes no line itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection
from logpipeline.nats.jetstream import JetStream
from logpipeline.observe.http import serve_pages
from logpipeline.observe.metrics import Metrics
from logpipeline_collector.config import CollectorConfig
from logpipeline_collector.folder import Folder
from logpipeline_collector.membership import membership_of
from logpipeline_collector.pages import Process, WorkerPage, pages_of
from logpipeline_collector.service import run_claimed
from logpipeline_collector.sharing import Share, board_path

log = logging.getLogger(__name__)

# Probes and Prometheus, which the collector passes on one by one.
PAGE_BACKLOG = 32


class Worker(Process, Protocol):
    """A process that is kept running."""

    restarts: int

    async def run(self) -> None:
        """Keep it running until it is stopped, or fails again and again."""

    async def stop(self) -> None:
        """Ask it to end, and return when it has."""


class WorkerFailed(OSError):
    """A worker cannot be kept running."""

    def __init__(self, index: int) -> None:
        super().__init__(f"worker {index} ended again and again; its last words say why")


async def run(
    config: CollectorConfig,
    stop: asyncio.Event,
    *,
    workers: int,
    make: Callable[[Share], Worker],
) -> int:
    """Collect with so many *workers* until *stop* is set, and return the exit code as one collector
    has it; *make* returns a worker's process, not yet started.
    """
    return await run_claimed(config, lambda folder: _Pod(config, folder, workers, make).run(stop))


class _Pod:
    def __init__(
        self, config: CollectorConfig, folder: Folder, count: int, make: Callable[[Share], Worker]
    ) -> None:
        self._config = config
        self._connection = Connection(config.nats.named(f"{config.group}/{config.member}"))
        bucket = Bucket(JetStream(self._connection), config.state_bucket)
        self._membership = membership_of(config, bucket, self._connection, folder)
        self._metrics = Metrics("collector")
        # Ours for as long as we run: a worker that is started again answers at the same port.
        self._sockets = [_listening() for _ in range(count)]
        self._workers = [
            make(Share(index, count, folder.incarnation, page.fileno()))
            for index, page in enumerate(self._sockets)
        ]
        self._metrics.watch("workers", "Workers that run", self._count_running)
        self._metrics.watch("worker_restarts", "Workers that were started again", self._restarts)
        # What workers of another number told is of no worker now.
        board_path(config).unlink(missing_ok=True)

    async def run(self, stop: asyncio.Event) -> None:
        """Collect until *stop* is set.

        Raises:
            ExceptionGroup: of what ended the collector: its name is taken, a worker cannot be kept
            running.
        """
        try:
            await self._connection.start()
            async with self._page(), asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(stop.wait())
                entering = tasks.create_task(self._membership.enter())
                await asyncio.wait([stopping, entering], return_when=asyncio.FIRST_COMPLETED)
                if entering.done():
                    await self._collect(tasks, stopping)
                entering.cancel()
                stopping.cancel()
        finally:
            await self._connection.close()
            for page in self._sockets:
                page.close()

    async def _collect(self, tasks: asyncio.TaskGroup, stopping: asyncio.Task[bool]) -> None:
        beating = tasks.create_task(self._membership.run())
        running = [tasks.create_task(worker.run()) for worker in self._workers]
        log.info(
            "collector runs",
            extra={
                "group": self._config.group,
                "member": self._config.member,
                "workers": len(running),
            },
        )
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        failed = [index for index, task in enumerate(running) if task.done()]
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        await asyncio.wait(running)
        await self._membership.leave()
        beating.cancel()
        if failed:
            raise WorkerFailed(failed[0])

    @contextlib.asynccontextmanager
    async def _page(self) -> AsyncIterator[None]:
        config = self._config
        if config.http_port is None:
            yield
            return
        pages = [
            WorkerPage(index, page.getsockname()[1], worker)
            for index, (page, worker) in enumerate(zip(self._sockets, self._workers, strict=True))
        ]
        answers = pages_of(pages, self._metrics)
        async with await serve_pages(config.http_host, config.http_port, answers) as page:
            log.info("metrics and health", extra={"port": page.port})
            yield

    def _count_running(self) -> float:
        return sum(bool(worker.pid) for worker in self._workers)

    def _restarts(self) -> float:
        return sum(worker.restarts for worker in self._workers)


def _listening() -> socket.socket:
    page = socket.socket()
    page.bind(("127.0.0.1", 0))
    page.listen(PAGE_BACKLOG)
    return page
