"""The lines for the tables: a file in the form of a container runtime, and the same lines in
streams, in messages like those of a shipper.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dataset import make_log
from logpipeline import zstd
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.partition import partition_of
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers, encode_payload, message_id, source_key

BASE = "BENCH"
BUCKET = "bench-state"
ROOT = "bench"
PARTITIONS = 10
# Two million lines are half an hour of a small cluster.
STEP_US = 1000
# The size and the compression of a shipper's message.
BATCH_BYTES_MAX = 128 * 1024
LEVEL = 1
IN_FLIGHT_MAX = 64
START_WITHIN_S = 30.0
LEVELS = ("INFO",) * 17 + ("WARN", "WARN", "ERROR")


@dataclass(frozen=True, slots=True)
class Source:
    """A *host* and the part of the file, from byte *start* to *end*, that came from it."""

    host: str
    start: int
    end: int


def make_cri(path: Path, *, lines: int) -> int:
    """Write *lines* lines of a container to *path*, the last of them in this minute, and return the
    number of bytes.
    """
    step = timedelta(microseconds=STEP_US)
    # Lines are stored soon after they were written: counts take a time far from that of storing for
    # a wrong clock, and count the line elsewhere.
    begin = datetime.now(UTC).replace(second=0, microsecond=0) - lines * step
    plain = path.with_suffix(".plain")
    # Lines of the dataset are some 130 bytes.
    written = make_log(plain, size=lines * 150)
    assert written >= lines
    with plain.open("rb") as source, path.open("wb") as target:
        for number in range(lines):
            target.write(_head(begin + number * step, number) + source.readline())
    plain.unlink()
    return path.stat().st_size


def _head(moment: datetime, number: int) -> bytes:
    level = LEVELS[number % len(LEVELS)]
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F level={level} ".encode()


def streams() -> tuple[str, ...]:
    """Return the names of the streams."""
    return tuple(f"{BASE}_{number}" for number in range(PARTITIONS))


async def fill(url: str, path: Path) -> int:
    """Store the lines of *path* in streams of the server at *url*; return the number of
    messages.
    """
    connection = Connection(NatsOptions(servers=(url,)))
    await connection.start(patience_s=START_WITHIN_S)
    js = JetStream(connection)
    for number, stream in enumerate(streams()):
        await _create(js, stream, [f"{ROOT}.p{number}.>"])
    await _create(js, f"KV_{BUCKET}", [f"$KV.{BUCKET}.>"])
    data = path.read_bytes()
    count = 0
    for source in sources(data):
        count += await _send(js, source, data)
    await connection.close()
    return count


async def _create(js: JetStream, name: str, subjects: list[str]) -> None:
    config = {"name": name, "subjects": subjects, "storage": "file", "allow_direct": True}
    await js.call(f"STREAM.CREATE.{name}", config)


def sources(data: bytes) -> Iterator[Source]:
    """Distribute *data* over as many hosts as there are partitions, one in each."""
    hosts: dict[int, str] = {}
    for number in itertools.count():
        host = f"node-{number}"
        hosts.setdefault(partition_of(host, PARTITIONS), host)
        if len(hosts) == PARTITIONS:
            break
    start = 0
    for rank, host in enumerate(sorted(hosts.values()), 1):
        wanted = len(data) * rank // PARTITIONS
        end = len(data) if rank == PARTITIONS else data.rfind(b"\n", 0, wanted) + 1
        yield Source(host, start, end)
        start = end


async def _send(js: JetStream, source: Source, data: bytes) -> int:
    """Store the lines of one *source* in order, some at a time."""
    compressor = zstd.Compressor(LEVEL)
    waiting: list[asyncio.Task[object]] = []
    position, count = source.start, 0
    while position < source.end:
        end = min(data.rfind(b"\n", 0, position + BATCH_BYTES_MAX) + 1, source.end)
        subject, payload, headers = _message(source, data[position:end], position, compressor)
        waiting.append(asyncio.ensure_future(js.publish(subject, payload, headers)))
        position, count = end, count + 1
        if len(waiting) >= IN_FLIGHT_MAX:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)
    return count


def _message(
    source: Source, data: bytes, position: int, compressor: zstd.Compressor
) -> tuple[str, bytes, dict[str, str]]:
    payload, is_compressed = encode_payload(data, compressor)
    batch = Batch(
        source=f"shop/cart-1/uid-{source.host}/cart/0",
        generation="0123456789abcdef",
        start=position - source.start,
        end=position - source.start + len(data),
        lines=data.count(b"\n"),
        format="cri",
        compressed=is_compressed,
        cluster="bench",
        namespace="shop",
        pod="cart-1",
        container="cart",
    )
    key = source_key("bench", source.host, batch.source)
    subject = Subjects(ROOT, PARTITIONS).of_host(source.host)
    return subject, payload, encode_headers(batch, message_id(key, batch))
