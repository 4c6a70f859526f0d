"""Runs a real shipper against a real server, and reads what arrived as a reader of ours would."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import warm
from logpipeline import wire
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline_shipper import service
from logpipeline_shipper.checkpoint import read_noted
from logpipeline_shipper.config import BatchOptions, ShipperConfig
from logpipeline_shipper.files.listing import HostSources
from waiting import WITHIN_S, eventually

T = TypeVar("T")

HOST = "node-a"
ROOT = "logs"
CONTROL = "_lp.logs"
STREAM = "LOGS_0"


def config_of(tmp_path: Path, url: str, **changes: Any) -> ShipperConfig:
    """Return the configuration of a shipper of ``<tmp_path>/logs/*.log``, with one partition."""
    logs = tmp_path / "logs"
    logs.mkdir(exist_ok=True)
    options: dict[str, Any] = {
        "nats": NatsOptions(servers=(url,), name="shipper"),
        "subject_root": ROOT,
        "control_root": CONTROL,
        "partitions": 1,
        "hosts": (HostSources(host=HOST, include=(f"{logs}/*.log",)),),
        "data": tmp_path / "data",
        "batch": BatchOptions(bytes_max=4096, linger_s=0.001),
        "ack_timeout_s": 0.5,
        "rescan_s": 0.2,
        "recall_s": 0.0,
        "recall_lost_s": 0.5,
    }
    return ShipperConfig(**(options | changes))


@dataclass
class RunningShipper:
    """A shipper in this process."""

    stopping: asyncio.Event
    task: asyncio.Task[int]
    _codes: list[int] = field(default_factory=list)

    async def stop(self) -> int:
        """Stop it as Ctrl-C would, and return its exit code."""
        self.stopping.set()
        return await self.task


@asynccontextmanager
async def shipping(config: ShipperConfig) -> AsyncIterator[RunningShipper]:
    """Run a shipper inside the block."""
    stopping = asyncio.Event()
    running = RunningShipper(stopping, asyncio.create_task(service.run(config, stopping)))
    try:
        yield running
    finally:
        if not running.task.done():
            await running.stop()


@asynccontextmanager
async def jetstream(server: EmbeddedServer, **options: Any) -> AsyncIterator[JetStream]:
    """Return a connection of the test's own."""
    connection = Connection(NatsOptions(servers=(server.url,), name="test", **options))
    await connection.start(patience_s=WITHIN_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


async def make_stream(js: JetStream, name: str = STREAM, **changes: Any) -> None:
    """Make a stream of the logs' only partition."""
    config = {
        "name": name,
        "subjects": [f"{ROOT}.p0.>"],
        "storage": "file",
        "discard": "new",
        "allow_direct": True,
        "duplicate_window": 120_000_000_000,
    }
    await js.call(f"STREAM.CREATE.{name}", config | changes)


async def stored(js: JetStream, name: str = STREAM) -> list[StoredMessage]:
    """Return all messages of a stream, oldest first."""
    info = await js.stream_info(name)
    assert info is not None
    state = info["state"]
    sequences = range(max(state["first_seq"], 1), state["last_seq"] + 1)
    found = [await js.message(name, sequence) for sequence in sequences]
    return [message for message in found if message is not None]


def batch_of(message: StoredMessage) -> wire.Batch:
    """Return the headers of a message of ours."""
    batch = wire.decode_headers(wire.parse_headers(message.headers))
    assert batch is not None
    return batch


def read_once(messages: list[StoredMessage]) -> dict[tuple[str, str], bytes]:
    """Return the bytes of each (host, source) as a reader sees them that cuts what came before.

    An overlap without the mark, or a gap, fails: readers would store bytes twice, or miss them.
    """
    reached: dict[tuple[str, str, str], int] = {}
    content: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for message in messages:
        batch = batch_of(message)
        host = message.subject.split(".", 2)[2]
        key = (host, batch.source, batch.generation)
        data = wire.decode_payload(batch, message.data)
        at = reached.get(key, 0)
        assert batch.start <= at, f"a gap before {batch}: only {at} was reached"
        assert batch.start == at or batch.resend, f"bytes twice without the mark: {batch}"
        if batch.end > at:
            content[host, batch.source].append(data[at - batch.start :])
            reached[key] = batch.end
    return {source: b"".join(parts) for source, parts in content.items()}


async def arrived(js: JetStream, path: Path, host: str = HOST, name: str = STREAM) -> bytes:
    """Return what arrived of the file at *path*."""
    return read_once(await stored(js, name)).get((host, str(path)), b"")


async def until_stored(js: JetStream, path: Path, expected: bytes, host: str = HOST) -> None:
    """Return when exactly *expected* has arrived of the file at *path* of *host*."""

    async def is_it() -> bool:
        return await arrived(js, path, host) == expected

    await until(is_it, what=f"{len(expected)} bytes of {path.name}")


async def until_noted(config: ShipperConfig, path: Path, end: int) -> None:
    """Return once a shipper has noted that it is about to send the bytes of *path* up to *end*."""

    def is_noted() -> bool:
        intents = read_noted(config.data, 0, "").intents
        return any((key.source, intent.end) == (str(path), end) for key, intent in intents)

    await eventually(is_noted)


async def until(condition: Callable[[], Awaitable[T | None]], *, what: str = "") -> T:
    """Return the first true value that *condition* comes to."""
    return await eventually(cast(Callable[[], Awaitable[T]], condition), what=what)


def lines_of(first: int, end: int) -> bytes:
    """Return the numbered lines from *first* up to, but without, *end*."""
    return b"".join(b"line %d of a log\n" % number for number in range(first, end))


def append(path: Path, data: bytes) -> None:
    """Append *data* to the file at *path*."""
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def start_process(tmp_path: Path, url: str, *, failpoint: str = "") -> warm.AnyProcess:
    """Run a shipper in a process of its own, which dies at *failpoint* (``name:count``)."""
    environment = os.environ | {VARIABLE: failpoint}
    with (tmp_path / "shipper.log").open("ab") as log:
        return warm.start(
            [str(tmp_path), url], stdout=log, stderr=log, env=environment, target=f"{__name__}:main"
        )


def main() -> int:
    """Be such a process."""
    folder, url = sys.argv[1:]
    config = config_of(Path(folder), url)

    async def run() -> int:
        return await service.run(config, asyncio.Event())

    return asyncio.run(run())
