"""The time and the chance of a simulated world, for all modules of this process."""

from __future__ import annotations

import random
import secrets
import time
from asyncio import AbstractEventLoop

from simulated.loop import PROCESS, VirtualLoop

# 2026-09-21: the first moment of each world.
EPOCH_S = 1_790_000_000
# By how many seconds the wall clock of a process is wrong, by its name.
WRONG_S: dict[str, float] = {}


def now_ns(loop: AbstractEventLoop) -> int:
    """Return the world's time in nanoseconds since 1970."""
    return EPOCH_S * 10**9 + int(loop.time() * 1e9)


def _wrong_s() -> float:
    return WRONG_S.get(PROCESS.get().partition("#")[0], 0.0) if WRONG_S else 0.0


def install(loop: VirtualLoop, seed: int) -> None:
    """Have every clock show the time of *loop*, and all chance come from *seed*."""
    time.monotonic = time.perf_counter = loop.time
    time.monotonic_ns = time.perf_counter_ns = lambda: int(loop.time() * 1e9)
    time.time = lambda: EPOCH_S + loop.now_s + _wrong_s()
    time.time_ns = lambda: now_ns(loop) + int(_wrong_s() * 1e9)
    chance = random.Random(seed ^ 0x5EED)
    secrets.token_hex = lambda nbytes=None: chance.randbytes(nbytes or 16).hex()
    secrets.token_bytes = lambda nbytes=None: chance.randbytes(nbytes or 16)
    random.seed(seed)
