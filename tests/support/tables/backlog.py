"""A backlog of lines in the streams of a pipeline, as its shippers would leave it, and what became
of it in a table.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import zstandard

from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers, message_id, source_key
from waiting import WITHIN_S

LINES_OF_BATCH = 256
# Bytes that no compression takes away: a backlog is as large in the streams as in the table.
RANDOM_BYTES_OF_LINE = 600
AT_ONCE = 32
TOP_UP_EVERY_S = 0.2
SOURCE = "/var/log/app.log"

Digests = dict[str, tuple[int, str]]


@dataclass(slots=True)
class Written:
    """The lines of one host: how many, and a hash over all of them in their order."""

    lines: int = 0
    end: int = 0
    hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def take(self, data: bytes) -> None:
        """Count *data*, whole lines."""
        self.lines += data.count(b"\n")
        self.end += len(data)
        self.hash.update(data)


@dataclass(slots=True)
class Backlog:
    """What *hosts* wrote, from *seed*."""

    subject: str
    partitions: int
    hosts: tuple[str, ...]
    seed: int
    written: dict[str, Written] = field(default_factory=dict)

    async def publish(self, nats: NatsOptions, *, batches: int) -> None:
        """Store *batches* more messages of each host."""
        connection = Connection(nats)
        await connection.start(patience_s=WITHIN_S)
        room = asyncio.Semaphore(AT_ONCE)
        js = JetStream(connection)
        try:
            await connection.wait_connected()
            # Of a host one after the other, as they stand in its file.
            await asyncio.gather(*(self._of_host(js, room, host, batches) for host in self.hosts))
        finally:
            await connection.close()

    async def top_up(self, nats: NatsOptions, *, rows: int, batches: int) -> None:
        """Let *batches* messages of each host wait for a reader that has *rows* lines."""
        waiting = (self.lines - rows) // (LINES_OF_BATCH * len(self.hosts))
        if waiting < batches:
            await self.publish(nats, batches=batches - waiting)

    @asynccontextmanager
    async def kept_up(
        self, nats: NatsOptions, rows: Callable[[], int], *, batches: int
    ) -> AsyncIterator[None]:
        """Top up again and again as long as the block lasts, for a reader that has *rows()* lines:
        it may read as fast as this writes.
        """
        ended = asyncio.Event()

        async def keep_up() -> None:
            while not ended.is_set():
                await self.top_up(nats, rows=await asyncio.to_thread(rows), batches=batches)
                with suppress(TimeoutError):
                    async with asyncio.timeout(TOP_UP_EVERY_S):
                        await ended.wait()

        task = asyncio.create_task(keep_up())
        try:
            yield
        finally:
            # Not cancelled: what it has begun to write has to be counted as well.
            ended.set()
            await task

    @property
    def lines(self) -> int:
        """How many lines are written."""
        return sum(each.lines for each in self.written.values())

    @property
    def digests(self) -> Digests:
        """How many lines each host wrote, and their hash."""
        return {host: (each.lines, each.hash.hexdigest()) for host, each in self.written.items()}

    async def _of_host(
        self, js: JetStream, room: asyncio.Semaphore, host: str, batches: int
    ) -> None:
        numbers = random.Random(f"{self.seed} {host} {self._of(host).end}")
        subject = Subjects(self.subject, self.partitions).of_host(host)
        for _ in range(batches):
            account = self._of(host)
            data = b"".join(
                b"%b %d %b\n" % (host.encode(), account.lines + number, _random_hex(numbers))
                for number in range(LINES_OF_BATCH)
            )
            batch = _batch(host, data, account.end)
            key = source_key("test", host, batch.source)
            payload = zstandard.compress(data, 1)
            async with room:
                await js.publish(subject, payload, encode_headers(batch, message_id(key, batch)))
            account.take(data)

    def _of(self, host: str) -> Written:
        return self.written.setdefault(host, Written())


def digests_of(rows: Iterable[Mapping[str, object]]) -> Digests:
    """Return how many lines *rows* hold of each host, and their hash in the order of their bytes;
    a row has `host`, `offset` and `line`.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        found.setdefault(str(row["host"]), []).append((int(str(row["offset"])), str(row["line"])))
    digests: Digests = {}
    for host, lines in found.items():
        account = Written()
        for _, line in sorted(lines):
            account.take(f"{line}\n".encode())
        digests[host] = (account.lines, account.hash.hexdigest())
    return digests


def _batch(host: str, data: bytes, start: int) -> Batch:
    plain = Batch(
        source=SOURCE,
        generation="0123456789abcdef",
        start=start,
        end=start + len(data),
        lines=data.count(b"\n"),
        format="plain",
        cluster="test",
    )
    return replace(plain, compressed=True)


def _random_hex(numbers: random.Random) -> bytes:
    return numbers.randbytes(RANDOM_BYTES_OF_LINE).hex().encode()
