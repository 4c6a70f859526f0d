"""Lives of many worlds, each in a process of its own: a world leaves nothing behind that another
could use. They are forked from one that has loaded all, since loading takes longer than a life.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

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
    waiting, running = iter(jobs), dict[int, tuple[int, Job, bytearray]]()
    try:
        while True:
            while len(running) < workers and (job := next(waiting, None)) is not None:
                pid, end = _forked(job)
                running[end] = pid, job, bytearray()
            if not running:
                return
            for end in select.select(list(running), [], [])[0]:
                pid, job, text = running[end]
                data = os.read(end, 1 << 16)
                text += data
                if not data:
                    del running[end]
                    os.close(end)
                    os.waitpid(pid, 0)
                    yield _read(job, bytes(text))
    finally:
        for end, (pid, _, _) in running.items():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(end)


def lived(job: Job) -> Lived:
    """Live through the world of *job*."""
    return next(iter(lives([job], workers=1)))


def _forked(job: Job) -> tuple[int, int]:
    end, other = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(other)
        return pid, end
    os.close(end)
    signal.alarm(LIFE_S)
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
    text = json.dumps([life.said, [str(fault) for fault in life.planned], life.problem]).encode()
    while text:
        text = text[os.write(other, text) :]
    os._exit(0)


def _read(job: Job, text: bytes) -> Lived:
    try:
        said, story, problem = json.loads(text)
    except ValueError:
        return Lived(job, {}, [], "it did not end")
    return Lived(job, said, story, problem)


def described(job: Job) -> dict[str, Any]:
    """Return *job* as JSON."""
    return asdict(job)
