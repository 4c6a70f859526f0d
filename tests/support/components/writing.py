"""Files of several hosts that are written while they are shipped, and what was stored of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from components.consuming import HOSTS, PARTITIONS, Streams
from logpipeline import wire
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import StoredMessage
from logpipeline.partition import partition_of

WRITE_EVERY_S = 0.01


@dataclass
class HostFiles:
    """The files of all hosts below *folder*, and how many lines stand in each."""

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)

    def append(self, host: str) -> None:
        """Write one more line of *host*."""
        path = self.folder / host / "files" / "app.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{host} {self.counts[host]}\n")
        self.counts[host] += 1

    def lines(self, host: str) -> list[str]:
        """What stands in the file of *host*."""
        return [f"{host} {number}" for number in range(self.counts[host])]


@asynccontextmanager
async def being_written(folder: Path) -> AsyncIterator[HostFiles]:
    """Write to the file of each host, as long as the block lasts."""
    files = HostFiles(folder)

    async def write() -> None:
        while True:
            for host in HOSTS:
                files.append(host)
            await asyncio.sleep(WRITE_EVERY_S)

    task = asyncio.create_task(write())
    try:
        yield files
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def lines_of(message: StoredMessage) -> list[str]:
    """The lines of a message, with our headers or without."""
    batch = wire.decode_headers(wire.parse_headers(message.headers)) if message.headers else None
    data = wire.decode_payload(batch, message.data) if batch else message.data
    return data.decode().removesuffix("\n").split("\n")


async def messages_of(streams: Streams, host: str) -> list[StoredMessage]:
    """All messages of a host as they are stored, oldest first: without what the server adds to the
    headers of those that it is asked for one by one.
    """
    found: list[StoredMessage] = []
    stream, subject = f"LOGS_{partition_of(host, PARTITIONS)}", streams.subject(host)
    while message := await streams.js.next_from_leader(
        stream, found[-1].sequence + 1 if found else 1, subject
    ):
        found.append(message)
    return found


async def have_reached(streams: Streams, counts: Counter[str]) -> bool:
    """Whether so many lines of each host's file are stored, by the number of its last one."""
    try:
        return all([await _reached(streams, host) >= counts[host] for host in HOSTS])
    except (NotSent, OutcomeUnknown):
        return False  # the server is just coming back


async def _reached(streams: Streams, host: str) -> int:
    stream = f"LOGS_{partition_of(host, PARTITIONS)}"
    last = await streams.js.last_message(stream, streams.subject(host))
    return int(lines_of(last)[-1].split(" ")[1]) + 1 if last else 0
