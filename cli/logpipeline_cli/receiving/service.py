"""A receiver as a process: its source, the files that it appends to, and its page of metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from logpipeline.observe.http import serve
from logpipeline.observe.metrics import Metrics
from logpipeline_cli.errors import EXIT_OK
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.spool import Spool

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where lines come from."""

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Give lines to *committer* until *stop* is set."""

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverConfig:
    """What all receivers have in common. *waits*: a full disk is waited for, and not answered."""

    folder: Path
    http: tuple[str, int]
    waits: bool
    rotate_bytes: int
    keep: int


async def run(
    config: ReceiverConfig, make: Callable[[Metrics], Source], stop: asyncio.Event
) -> int:
    """Receive until *stop* is set and all that was taken is durable; return the exit code.

    Raises:
        FileLocked: another process owns the folder.
        OSError: an address cannot be listened on, or the disk fails.
    """
    metrics = Metrics("receiver")
    spool = await asyncio.to_thread(
        lambda: Spool(config.folder, rotate_bytes=config.rotate_bytes, keep=config.keep)
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
