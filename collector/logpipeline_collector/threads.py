"""Runs what waits for a disk outside the event loop, and never leaves it running unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(
    executor: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the result of *function*, run in a thread; cancelled, it ends only with the thread.

    Otherwise a file would be closed under the hands of a thread that still writes it.
    """
    future = asyncio.get_running_loop().run_in_executor(executor, lambda: function(*args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise
