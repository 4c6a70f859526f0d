"""One page for a collector of several workers: their numbers side by side, and whether all of them
live and work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from logpipeline.observe.http import LIVE, METRICS, READY, Answer, Page, checked, fetch
from logpipeline.observe.metrics import CONTENT_TYPE, Metrics


class Process(Protocol):
    """A worker's process, which is kept running."""

    @property
    def pid(self) -> int:
        """The running process, or 0."""


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """Where worker *index*, run by *process*, is asked."""

    index: int
    port: int
    process: Process

    async def trouble(self, path: str) -> str | None:
        """Return what the worker says at *path* of its health, None if it is well."""
        try:
            answer = await fetch(self.port, path)
        except (OSError, EOFError, TimeoutError):
            return f"worker {self.index}: does not answer"
        if answer.status is HTTPStatus.OK:
            return None
        return f"worker {self.index}: {answer.body.decode(errors='replace').strip()}"


def pages_of(workers: Sequence[WorkerPage], own: Metrics) -> dict[str, Page]:
    """Return the pages of the collector whose workers these are; *own* are its own numbers."""

    async def numbers() -> Answer:
        bodies = await asyncio.gather(*(_numbers(worker) for worker in workers))
        texts = {str(worker.index): body for worker, body in zip(workers, bodies, strict=True)}
        return Answer(HTTPStatus.OK, merged(own.exposition(), texts), CONTENT_TYPE)

    async def live() -> Answer:
        # One that is being started again lives; whether it ever does, its collector decides.
        running = [worker for worker in workers if worker.process.pid]
        return await _joined(running, LIVE)

    async def ready() -> Answer:
        return await _joined(workers, READY)

    return {METRICS: numbers, LIVE: live, READY: ready}


async def _numbers(worker: WorkerPage) -> bytes:
    try:
        return (await fetch(worker.port, METRICS)).body
    except (OSError, EOFError, TimeoutError):
        return b""


async def _joined(workers: Sequence[WorkerPage], path: str) -> Answer:
    found = await asyncio.gather(*(worker.trouble(path) for worker in workers))
    return checked("; ".join(filter(None, found)) or None)


def merged(own: bytes, workers: Mapping[str, bytes]) -> bytes:
    """Return the numbers of all *workers* under a label ``worker``, beside *own* ones without it,
    each family once.
    """
    families: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for worker, text in [("", own), *workers.items()]:
        name = b""
        for line in text.splitlines():
            if line.startswith(b"# "):
                name = line.split(b" ", 3)[2]
                head = families.setdefault(name, [])
                if line not in head:
                    head.append(line)
            else:
                samples.setdefault(name, []).append(_labelled(line, worker) if worker else line)
    lines = [line for name, head in families.items() for line in head + samples.get(name, [])]
    return b"".join(line + b"\n" for line in lines)


def _labelled(sample: bytes, worker: str) -> bytes:
    label = f'worker="{worker}"'.encode()
    name, brace, rest = sample.partition(b"{")
    # A name holds no blank: one before the brace means that the brace is no label's.
    if brace and b" " not in name:
        return name + b"{" + label + b"," + rest
    name, _, rest = sample.partition(b" ")
    return name + b"{" + label + b"} " + rest
