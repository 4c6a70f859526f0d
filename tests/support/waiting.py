"""Wait for a condition instead of sleeping, so that a test is as fast as what it tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

T = TypeVar("T")

POLL_S = 0.01
# A condition that takes long, as a command does, is looked at again after as long a pause: those
# that run beside it need the processors in order to make it true.
POLL_S_MAX = 0.5
# The limit for a wait that will never end.
WITHIN_S = 60.0
# A wait ends also where something else keeps the machine busy for ever.
SLOWER_MAX = 8.0


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], *, within_s: float = ..., what: str = ...
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T], *, within_s: float = ..., what: str = ...
) -> T: ...


async def eventually(
    condition: Callable[[], T | Awaitable[T]], *, within_s: float = WITHIN_S, what: str = ""
) -> T:
    """Return the first true value of *condition*; an assertion that fails in it means not yet.

    *within_s* are seconds of a machine that is not busy: what is waited for gets its share of the
    processors, and on a busy machine takes that much longer.

    Raises:
        AssertionError: there was none *within_s*; it carries what was seen last.
    """
    waited_s = 0.0
    while True:
        began = time.monotonic()
        seen: object
        try:
            value = condition()
            seen = await value if inspect.isawaitable(value) else value
        except AssertionError as error:
            seen = error
        else:
            if seen:
                return cast(T, seen)
        if waited_s > within_s:
            raise AssertionError(f"not within {within_s} s: {what or condition}; last: {seen!r}")
        await asyncio.sleep(min(max(POLL_S, time.monotonic() - began), POLL_S_MAX))
        waited_s += (time.monotonic() - began) / _slower()


def _slower() -> float:
    """Return how many times longer than alone something takes on this machine now: the processes
    that could run, for each processor.
    """
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), SLOWER_MAX)
