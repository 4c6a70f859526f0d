"""Wait for a condition instead of sleeping, so that a test is as fast as what it tests."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

T = TypeVar("T")

POLL_S = 0.01
# A condition that takes long, as a command does, is looked at again after as long a pause: those
# that run beside it need the processors in order to make it true.
POLL_S_MAX = 0.5
# The limit for a wait that will never end. It is wide, since other tests may use the processors: it
# is no promise of the product, and such a promise has a limit of its own.
WITHIN_S = 60.0


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

    Raises:
        AssertionError: there was none *within_s*; it carries what was seen last.
    """
    deadline = time.monotonic() + within_s
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
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or condition}; last: {seen!r}")
        await asyncio.sleep(min(max(POLL_S, time.monotonic() - began), POLL_S_MAX))
