"""Many faults in little time: several sites beside each other take one after the other, until there
is none left. Those that end the operator come last and alone: while it is away, it says nothing of
other sites.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from cluster.evidence import evidence
from cluster.healing.cluster_faults import Fault, Trouble
from cluster.healing.site import ASK_EVERY_S, Site, until
from cluster.installed_operator import Operator

# Of each part of what a failed fault leaves behind, for whoever has to find out.
EVIDENCE_CHARS_MAX = 6_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault came to: the time until nothing was to be seen of it any more, what was said of
    the pipeline meanwhile, and the lines that were counted.
    """

    seconds: float
    said: tuple[str, ...]
    lost: int
    twice: int


Outcomes = dict[str, Future[Outcome]]


class Waiting:
    """The faults that are still to be made, for sites in threads of their own."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._beside = deque(fault for fault in faults if not fault.ends_operator)
        self._alone = deque(fault for fault in faults if fault.ends_operator)
        self._under_way = 0
        self._lock = Lock()

    async def take(self) -> Fault | None:
        """Return the next fault, or None where none is left; `done` is to follow."""
        while self._beside or self._alone:
            with self._lock:
                found = self._beside or (self._alone if not self._under_way else None)
                if found:
                    self._under_way += 1
                    return found.popleft()
            await asyncio.sleep(ASK_EVERY_S)
        return None

    def done(self) -> None:
        """Say that a fault that was taken has come to its end."""
        with self._lock:
            self._under_way -= 1

    def clear(self) -> list[Fault]:
        """Take and return all that are left."""
        with self._lock:
            left = [*self._beside, *self._alone]
            self._beside.clear()
            self._alone.clear()
        return left


@contextmanager
def campaign(
    operator: Operator, sites: Sequence[Site], faults: Sequence[Fault]
) -> Iterator[Outcomes]:
    """Make *faults* on *sites*, in their order, and yield what will come of each, by name."""
    outcomes: Outcomes = {fault.name: Future() for fault in faults}
    waiting = Waiting(faults)
    with ThreadPoolExecutor(len(sites)) as pool:
        working = [
            pool.submit(asyncio.run, _work(Trouble(site, operator), waiting, outcomes))
            for site in sites
        ]

        def give_up(_: Future[None]) -> None:
            if all(each.done() for each in working):
                for fault in waiting.clear():
                    outcomes[fault.name].set_exception(AssertionError("no site was left for it"))

        for each in working:
            each.add_done_callback(give_up)
        try:
            yield outcomes
        finally:
            # Tests that were not asked for, or a run that is ended, need no more of them.
            waiting.clear()


async def _work(trouble: Trouble, waiting: Waiting, outcomes: Outcomes) -> None:
    """Make faults on one site until none waits; where one does not end, the site is left."""
    is_new = True
    while fault := await waiting.take():
        try:
            if is_new:
                await trouble.site.begins()
            is_new = False
            outcomes[fault.name].set_result(await _endure(trouble, fault))
        except Exception as error:  # noqa: BLE001 - the fault's own test raises it
            outcomes[fault.name].set_exception(_told(error, trouble.site))
            return
        finally:
            waiting.done()


async def _endure(trouble: Trouble, fault: Fault) -> Outcome:
    site = trouble.site
    known = {event["metadata"]["name"] for event in site.events()}
    started = time.monotonic()
    await fault.begin(trouble)

    def said() -> tuple[str, ...]:
        news = [each for each in site.events() if each["metadata"]["name"] not in known]
        return tuple(dict.fromkeys(each["reason"] for each in news))

    def is_said() -> bool:
        reasons = said()
        assert not fault.says or set(fault.says) & set(reasons), reasons
        return True

    await until(is_said, f"it is said: {' or '.join(fault.says)}")
    await site.is_collected()
    await site.is_ready()
    seconds = time.monotonic() - started
    # What repeats lines may do it until the end.
    lines = await site.is_collected()
    return Outcome(seconds, said(), *site.count(lines))


def _told(error: Exception, site: Site) -> Exception:
    """Return *error* with what there is of the site, before it changes any more."""
    for title, text in evidence(site.cluster, site.namespace):
        error.add_note(f"{title}:\n{text[-EVIDENCE_CHARS_MAX:]}")
    return error
