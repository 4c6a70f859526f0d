"""Keeps the tasks going that look after a pipeline: a mistake in one must not end it silently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 5.0


async def lasting(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Await *run*, and again after a while whenever it fails, until cancelled; *what* is what
    stands still meanwhile.
    """
    while True:
        try:
            return await run()
        except Exception:
            log.exception(
                "a part of `up` failed, and is started again",
                extra={"what": what, "wait_s": AGAIN_AFTER_S},
            )
        await asyncio.sleep(AGAIN_AFTER_S)
