"""Lives of many worlds, each in a process of its own."""

from __future__ import annotations

import logging
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from forked import results
from simulated.run import EVERY_S, Life, live
from simulated.world import Shape

# A life takes seconds. One that never ends is a finding of its own.
LIFE_S = 240
# Of processor time. A script takes less than one.
SCRIPT_CPU_S = 5


@dataclass(frozen=True, slots=True)
class Job:
    """One world that is to be lived through."""

    shape: Shape
    every_s: float = EVERY_S
    kinds: tuple[str, ...] | None = None
    only: tuple[int, ...] | None = None
    defect: str | None = None
    script: str | None = None


@dataclass(slots=True)
class Lived:
    """What came of a job."""

    job: Job
    said: dict[str, Any]
    story: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether all was as it should be."""
        return not self.problem


def repeatable() -> None:
    """Start this program again where its sets would have another order each time."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    logging.basicConfig(level=logging.CRITICAL)


def lives(jobs: Iterable[Job], *, workers: int) -> Iterator[Lived]:
    """Live through the worlds of *jobs*, *workers* at a time, and yield each when it is over."""
    tasks = ((job, partial(lived_here, job)) for job in jobs)
    for job, answer in results(tasks, workers=workers, within_s=LIFE_S):
        yield Lived(job, {}, [], "it did not end") if answer is None else Lived(job, *answer)


def lived(job: Job) -> Lived:
    """Live through the world of *job*."""
    return next(iter(lives([job], workers=1)))


def lived_here(job: Job) -> tuple[dict[str, Any], list[str], str]:
    """Live through the world of *job* in this process, which cannot be used for a second world.
    Return its counts, its faults as text, and its problem, which is empty if there is none.
    """
    if job.script is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (SCRIPT_CPU_S, SCRIPT_CPU_S))
    try:
        life = live(
            job.shape,
            every_s=job.every_s,
            kinds=job.kinds,
            only=job.only,
            defect=job.defect,
            script=job.script,
        )
    except BaseException:  # noqa: BLE001  # what fails outside of the product is to be seen as well
        life = Life([], "the world itself failed: " + traceback.format_exc(), {})
    return life.said, [str(fault) for fault in life.planned], life.problem


def described(job: Job) -> dict[str, Any]:
    """Return *job* as JSON."""
    return asdict(job)
