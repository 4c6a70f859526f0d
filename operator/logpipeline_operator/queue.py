"""The queue of pipelines to reconcile. A pipeline is reconciled by one worker at a time, and soon
rather than often.

Triggers say only *that* something may have changed; a hundred at once cause one reconciliation.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

# Between two reconciliations of a pipeline: a rolling update causes an event for each step of a
# pod.
GAP_S = 0.25
GAP_MAX_S = 60.0
# More workers would only wait for each other at the API server.
WORKERS = 8
# The limit of one reconciliation. Its requests have shorter limits; one that hangs anyway counts as
# failed, and is repeated. Without the limit the pipeline would never be reconciled again.
RECONCILE_S_MAX = 300.0
# One that is ended sooner can still report why.
LOOK_S_MAX = 270.0
NEVER = float("inf")
# More doublings would not change the gap, which has a maximum.
FAILURES_MAX = 20


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A pipeline."""

    namespace: str
    name: str


Reconcile = Callable[[Key], Awaitable[float | None]]


@dataclass(slots=True)
class _Entry:
    due: float
    # When the gap after the last reconciliation is over.
    not_before: float = 0.0
    failures: int = 0
    is_running: bool = False
    # Added again during its reconciliation.
    again: float | None = None


@dataclass(slots=True)
class Queue:
    """The pipelines that wait for a reconciliation; *jitter* spreads those that failed together."""

    clock: Callable[[], float]
    jitter: Callable[[], float] = random.random
    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: Key, *, after_s: float = 0.0) -> None:
        """Reconcile *key* after at least *after_s* seconds; an earlier time stays."""
        due = self.clock() + after_s
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(due)
        elif entry.is_running:
            entry.again = due if entry.again is None else min(entry.again, due)
        elif entry.failures == 0:
            entry.due = min(entry.due, max(due, entry.not_before))
        else:
            # A pipeline that keeps failing is not tried more often because of its own events.
            entry.due = min(entry.due, self.clock() + max(after_s, _gap(entry.failures)))
        self._changed.set()

    async def run(self, reconcile: Reconcile) -> None:
        """Reconcile the due pipelines, for ever: *reconcile* returns after how many seconds to do
        so again (None: at the next trigger), and is repeated with back-off when it raises.
        """
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                wait_s = self._start_due(group, reconcile)
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    def _start_due(self, group: asyncio.TaskGroup, reconcile: Reconcile) -> float | None:
        now = self.clock()
        self._forget_rested(now)
        running = sum(entry.is_running for entry in self._entries.values())
        waiting = sorted(
            (entry.due, key) for key, entry in self._entries.items() if not entry.is_running
        )
        for due, key in waiting:
            if running >= WORKERS:
                return None
            if due > now:
                return None if due == NEVER else due - now
            self._entries[key].is_running = True
            running += 1
            group.create_task(self._reconcile_once(key, reconcile))
        return None

    def _forget_rested(self, now: float) -> None:
        """Forget pipelines without a next time, as soon as their gap is over."""
        for key, entry in list(self._entries.items()):
            if entry.due == NEVER and not entry.is_running and entry.not_before <= now:
                del self._entries[key]

    async def _reconcile_once(self, key: Key, reconcile: Reconcile) -> None:
        entry = self._entries[key]
        after_s: float | None
        try:
            async with asyncio.timeout(RECONCILE_S_MAX):
                after_s = await reconcile(key)
            entry.failures = 0
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled():
                raise
            entry.failures = min(entry.failures + 1, FAILURES_MAX)
            after_s = _gap(entry.failures) * (1 + self.jitter())
            log.exception(
                "a pipeline could not be reconciled, trying again",
                extra={"pipeline": f"{key.namespace}/{key.name}", "wait_s": round(after_s, 1)},
                exc_info=error,
            )
        self._rest(entry, after_s)
        self._changed.set()

    def _rest(self, entry: _Entry, after_s: float | None) -> None:
        now = self.clock()
        entry.not_before = now + _gap(entry.failures)
        due = NEVER if after_s is None else now + after_s
        if entry.again is not None:
            due = min(due, max(entry.again, entry.not_before))
        entry.again, entry.due, entry.is_running = None, due, False


def _is_cancelled() -> bool:
    """Return whether this task was cancelled. Awaiting a future that other code cancelled raises
    CancelledError as well, without a request to end this task: then only the reconciliation failed.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _gap(failures: int) -> float:
    return min(GAP_S * 2.0**failures, GAP_MAX_S)


@dataclass(slots=True)
class Backoff:
    """The waits before unsettled pipelines are reconciled again: *first_s* after any change, then
    twice as long each time, up to *longest_s*, so that hundreds of pipelines that wait for a node
    do not keep Kubernetes busy.
    """

    first_s: float
    longest_s: float
    _waits: dict[Key, tuple[str, float]] = field(default_factory=dict)

    def wait_s(self, key: Key, version: str) -> float:
        """Return after how many seconds to reconcile the pipeline, seen in *version*, again. If the
        version is the same as before, neither its spec nor its status has changed.
        """
        former, waited_s = self._waits.get(key, ("", 0.0))
        wait_s = self.first_s
        if version == former:
            wait_s = max(self.first_s, min(2 * waited_s, self.longest_s))
        self._waits[key] = (version, wait_s)
        return wait_s

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget pipelines that are no longer there."""
        known = set(keys)
        self._waits = {key: wait for key, wait in self._waits.items() if key in known}
