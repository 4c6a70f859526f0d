"""A receiver as a process: its source, the files that it appends to, and its page of metrics."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logpipeline.descriptors import files_at_once
from logpipeline.observe.http import serve
from logpipeline.observe.metrics import Metrics
from logpipeline_cli.errors import EXIT_OK
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.spool import OPEN_FILES_MAX, Spool

# Descriptors besides those of files and connections: listeners, the page of metrics and who reads
# it, a program of which lines are read, and what Python opens for a moment.
OTHERS_OPEN = 64

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where lines come from."""

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Give lines to *committer* until *stop* is set."""

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverConfig:
    """What all receivers have in common. *waits*: a full disk is waited for, and not answered.
    *connections_max*: how many senders may be connected at once.
    """

    folder: Path
    http: tuple[str, int]
    waits: bool
    rotate_bytes: int
    keep: int
    connections_max: int = 0


async def run(
    config: ReceiverConfig, make: Callable[[Metrics], Source], stop: asyncio.Event
) -> int:
    """Receive until *stop* is set and all that was taken is durable; return the exit code.

    Raises:
        FileLocked: another process owns the folder.
        OSError: an address cannot be listened on, or the disk fails.
    """
    metrics = Metrics("receiver")
    files_max = _files_at_once(config)
    spool = await asyncio.to_thread(
        lambda: Spool(
            config.folder,
            rotate_bytes=config.rotate_bytes,
            keep=config.keep,
            open_files_max=files_max,
        )
    )
    committer = Committer(spool, metrics, config.waits)
    try:
        source = make(metrics)

        def why_not_ready() -> str | None:
            return committer.why_not_ready() or source.why_not_ready()

        async with await serve(*config.http, metrics, lambda: None, why_not_ready) as page:
            log.info("started", extra={"folder": str(config.folder), "port": page.port})
            async with asyncio.TaskGroup() as tasks:
                drained = asyncio.Event()
                tasks.create_task(committer.run(drained))
                await source.run(committer, stop)
                drained.set()
    finally:
        committer.close()
        await asyncio.to_thread(spool.close)
    log.info("stopped")
    return EXIT_OK


def _files_at_once(config: ReceiverConfig) -> int:
    others = config.connections_max + OTHERS_OPEN
    files_max = files_at_once(OPEN_FILES_MAX, besides=others)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < files_max + others:
        log.warning(
            "the limit of open files is lower than so many connections need",
            extra={"limit": limit, "needed": files_max + others},
        )
    return files_max
