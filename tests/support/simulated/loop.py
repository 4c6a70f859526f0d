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
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from random import Random
from typing import Any

WORLD = "world"
PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default=WORLD)

# What a call in a thread takes: a disk that is neither idle nor stuck.
CALL_S = (0.0001, 0.004)


class Killed(BaseException):
    """Ends what a process does in a thread, where it is killed in the middle of it."""


class Deadlock(RuntimeError):
    """Nothing is left to do, and no timer is set: nothing will ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. *random* decides how long calls in threads take."""

    def __init__(self, random: Random) -> None:
        self.now_s = 0.0
        self.steps = 0
        # Whether a call in a thread is being made now.
        self.is_in_thread = False
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
        self._tasks: defaultdict[str, weakref.WeakSet[asyncio.Task[Any]]] = defaultdict(
            weakref.WeakSet
        )
        # By time, and of one moment in the order in which they were made. Tuples are compared
        # without a call of Python, which handles are not: a tenth of what a world costs.
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        super().__init__(_Selector())  # type: ignore[arg-type]  # a selector in all that is used

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

    def is_killed(self, pid: str) -> bool:
        """Return whether the process *pid* was killed."""
        return pid in self._dead

    def is_frozen(self, pid: str) -> bool:
        """Return whether the process *pid* stands still."""
        return pid in self._frozen

    def kill(self, pid: str) -> None:
        """Let the process *pid* run nothing any more."""
        self._dead.add(pid)
        self._sweep(pid)
        _, held = self._frozen.pop(pid, (0.0, deque()))
        for handle in held:
            handle.cancel()

    def is_dead(self, name: str) -> bool:
        """Return whether *name* was killed, and not started since."""
        pid = self._current.get(name)
        return pid is None or pid in self._dead

    def tasks_by_process(self) -> dict[str, int]:
        """Return how many tasks each process has that lives."""
        return {
            pid: sum(not task.done() for task in tasks)
            for pid, tasks in self._tasks.items()
            if pid not in self._dead and pid != WORLD
        }

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        """Note which process has the task."""
        task = super().create_task(coro, **named)
        context = named.get("context")
        pid = PROCESS.get() if context is None else context.get(PROCESS, WORLD)
        self._tasks[pid].add(task)
        return task

    def pid_of(self, name: str) -> str:
        """Return the number of the last process *name*."""
        return self._current[name]

    # -- what the base class calls

    def _run_once(self) -> None:
        """Run what is ready, or else move on to the next timer. The base class's own costs twice as
        much: it asks a selector, and looks for callbacks that are slow.
        """
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        due = self._due
        self.steps += 1
        if not ready:
            while due and due[0][2]._cancelled:
                heapq.heappop(due)
            if not due:
                raise Deadlock
            if due[0][0] > self.now_s:
                self.now_s = due[0][0]
        while due and due[0][0] <= self.now_s:
            timer = heapq.heappop(due)[2]
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            # A process that is killed meanwhile takes its own out.
            if not ready:
                return
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._frozen or self._dead:
            pid = handle._context.get(PROCESS, WORLD)  # type: ignore[attr-defined]
            if pid in self._dead:
                self._bury(handle)
                return handle
            if pid in self._frozen:
                self._frozen[pid][1].append(handle)
                return handle
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._frozen or self._dead:
            pid = handle._context.get(PROCESS, WORLD)  # type: ignore[attr-defined]
            if pid in self._dead:
                self._bury(handle)
                return handle
            if pid in self._frozen:
                when = max(when, self._frozen[pid][0])
        self._timers += 1
        heapq.heappush(self._due, (when, self._timers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it: it is dropped when its time comes."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call *func* now, and have its result some time later: no thread runs beside the loop."""
        future = self.create_future()
        self.is_in_thread = True
        try:
            done = partial(_settle, future, result=func(*args))
        except Killed:
            self._graves.append(future)
            return future
        except Exception as error:  # noqa: BLE001  # whoever waits for it gets it
            done = partial(_settle, future, error=error)
        finally:
            self.is_in_thread = False
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
        mine = [each for each in self._due if _process_of(each[2]) == pid]
        if pid in self._dead:
            for _, _, timer in mine:
                self._bury(timer)
            return
        until_s, _ = self._frozen[pid]
        late = {number for when, number, _ in mine if when < until_s}
        self._due = [
            (until_s if number in late else when, number, timer)
            for when, number, timer in self._due
        ]
        heapq.heapify(self._due)

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


class _Selector:
    """A selector that is never asked: nothing comes from outside."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
