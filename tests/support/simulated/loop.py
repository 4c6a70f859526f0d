"""An event loop whose time passes only when nothing is left to do, with processes in it that can be
frozen and killed.

A process is a value of a context variable: whatever a task of it starts belongs to it as well. One
that is frozen runs nothing until it thaws, as with SIGSTOP; one that is dead runs nothing any more,
not even what stands in its `finally` blocks, as with SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Any

WORLD = "world"
PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default=WORLD)

# What a call in a thread takes: a disk that is neither idle nor stuck.
CALL_S = (0.0001, 0.004)
# Two timers of one moment run in the order in which they were made.
TICK_S = 1e-9


class Deadlock(RuntimeError):
    """Nothing is left to do, and no timer is set: nothing will ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. *random* decides how long calls in threads take."""

    def __init__(self, random: Random) -> None:
        self.now_s = 0.0
        self.steps = 0
        self._random = random
        self._timers = 0
        self._processes = 0
        # The last process of each name. All else goes by a number that is used once: what another
        # process left behind must not wake up with its successor.
        self._current: dict[str, str] = {}
        self._frozen: dict[str, tuple[float, deque[asyncio.Handle]]] = {}
        self._dead: set[str] = set()
        # What a dead process had is never collected: collecting a coroutine runs its `finally`.
        self._graves: list[object] = []
        super().__init__(_Clock(self))  # type: ignore[arg-type]  # a selector in all that is used

    def time(self) -> float:
        return self.now_s

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start *work* as the process *name*; one that had this name before goes on beside it."""
        self._processes += 1
        self._current[name] = pid = f"{name}#{self._processes}"
        context = contextvars.copy_context()
        context.run(PROCESS.set, pid)
        task = self.create_task(work, name=name, context=context)
        self._graves.append(task)
        return task

    def freeze(self, name: str, seconds: float) -> None:
        """Let *name* run nothing for so long."""
        pid = self._current.get(name)
        if pid is None or pid in self._dead:
            return
        until_s, held = self._frozen.get(pid, (0.0, deque()))
        self._frozen[pid] = max(until_s, self.now_s + seconds), held
        self._sweep(pid)
        self.call_at(self._frozen[pid][0], self._thaw, pid, context=contextvars.Context())

    def kill(self, name: str) -> None:
        """Let *name* run nothing any more."""
        pid = self._current[name]
        self._dead.add(pid)
        self._sweep(pid)
        _, held = self._frozen.pop(pid, (0.0, deque()))
        for handle in held:
            handle.cancel()

    def is_dead(self, name: str) -> bool:
        """Return whether *name* was killed, and not started since."""
        return self._current.get(name) in self._dead | {None}

    def pid_of(self, name: str) -> str:
        """Return the number of the last process *name*."""
        return self._current[name]

    # -- what the base class calls

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if self._frozen or self._dead:
            pid = _process_of(handle)
            if pid in self._dead or pid in self._frozen:
                self._ready.pop()  # type: ignore[attr-defined]
            if pid in self._dead:
                self._bury(handle)
            elif pid in self._frozen:
                self._frozen[pid][1].append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        self._timers += 1
        handle = super().call_at(when + self._timers * TICK_S, callback, *args, context=context)
        if self._dead and _process_of(handle) in self._dead:
            self._bury(handle)
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call *func* now, and have its result some time later: no thread runs beside the loop."""
        future = self.create_future()
        try:
            done = partial(_settle, future, result=func(*args))
        except Exception as error:  # noqa: BLE001  # whoever waits for it gets it
            done = partial(_settle, future, error=error)
        self.call_later(self._random.uniform(*CALL_S), done)
        return future

    # -- processes

    def _sweep(self, pid: str) -> None:
        """Take what *pid* was about to run out of the loop."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        for handle in [each for each in ready if _process_of(each) == pid]:
            ready.remove(handle)
            if pid in self._dead:
                self._bury(handle)
            else:
                self._frozen[pid][1].append(handle)
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        mine = [each for each in timers if _process_of(each) == pid and not each.cancelled()]
        if pid in self._dead:
            for timer in mine:
                self._bury(timer)
            return
        until_s, _ = self._frozen[pid]
        for timer in mine:
            if timer.when() < until_s:
                # The handle itself stays the same: its owner may cancel it.
                self._timers += 1
                timer._when = until_s + self._timers * TICK_S  # type: ignore[attr-defined]
        heapq.heapify(timers)

    def _thaw(self, pid: str) -> None:
        frozen = self._frozen.get(pid)
        if frozen is None or frozen[0] > self.now_s:
            return
        del self._frozen[pid]
        self._ready.extend(frozen[1])  # type: ignore[attr-defined]

    def _bury(self, handle: asyncio.Handle) -> None:
        self._graves.append((handle._callback, handle._args))  # type: ignore[attr-defined]
        handle.cancel()


def _settle(
    future: asyncio.Future[Any], *, result: object = None, error: Exception | None = None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _process_of(handle: asyncio.Handle) -> str:
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS, WORLD)


class _Clock:
    """A selector that moves the loop's time on instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Deadlock
        self._loop.steps += 1
        if timeout > 0:
            self._loop.now_s += timeout
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
