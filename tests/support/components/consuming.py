"""A pipeline of three partitions whose lines are known, for tests of those who read its streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import warm
from logpipeline import checksum
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import CONSUMER_NOT_FOUND, ApiError, JetStream
from logpipeline.partition import partition_of
from logpipeline.spec import LogPipeline, load
from logpipeline.wire import Batch, Checksums, encode_headers, message_id, source_key
from waiting import WITHIN_S, eventually

PARTITIONS = 3
COMMAND_S = 25
GENERATION = "0123456789abcdef"
TAKEOVER_S = 1


def _hosts() -> list[str]:
    """Return a host of each partition."""
    names = (f"web{number}" for number in range(100))
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(partition_of(name, PARTITIONS), name)
    return [found[number] for number in range(PARTITIONS)]


HOSTS = _hosts()


@dataclass
class Streams:
    """A pipeline's streams on *server*, what was written to them, and commands that read them."""

    server: EmbeddedServer
    folder: Path
    file: Path
    js: JetStream
    written: list[str] = field(default_factory=list)
    readers: list[Reading] = field(default_factory=list)
    _offsets: Counter[str] = field(default_factory=Counter)
    _content: dict[str, bytearray] = field(default_factory=dict)
    _again: int = 0

    @property
    def pipeline(self) -> LogPipeline:
        """The resource."""
        return load(self.file)

    async def write(self, messages: int, *, lines: int = 1) -> None:
        """Store so many messages in each partition, each with so many lines that tell of host and
        place.
        """
        for _ in range(messages):
            for host in HOSTS:
                await self.send(host, lines)

    async def send(self, host: str, lines: int = 1) -> None:
        """Store one message of *host*."""
        first = sum(line.startswith(f"{host} ") for line in self.written)
        texts = [f"{host} {first + number}" for number in range(lines)]
        data = "".join(f"{text}\n" for text in texts).encode()
        start = self._offsets[host]
        self._offsets[host] += len(data)
        await self.store(host, start, data)
        self.written += texts

    async def store(
        self, host: str, start: int, data: bytes, *, again: bool = False, broken: bool = False
    ) -> None:
        """Store *data* as the bytes from *start* of the host's file, as shippers do, with the sums
        of all before; maybe *again*, or *broken*: it says that it is compressed, and is not.
        """
        content = self._content.setdefault(host, bytearray())
        content.extend(bytes(max(0, start - len(content))))
        content[start : start + len(data)] = data
        before = checksum.extend(checksum.NOTHING, bytes(content[:start]))
        batch = Batch(
            source="/var/log/app.log",
            generation=GENERATION,
            start=start,
            end=start + len(data),
            lines=data.count(b"\n"),
            format="plain",
            resend=again,
            compressed=broken,
            checksums=Checksums.around(data, before),
        )
        key = source_key("test", host, batch.source)
        self._again += again
        name = message_id(key, batch, attempt=f"again{self._again}" if again else "")
        await self.js.publish(self.subject(host), data, encode_headers(batch, name))

    def subject(self, host: str) -> str:
        """The subject that *host* writes to."""
        return f"logs.p{partition_of(host, PARTITIONS)}.{host}"

    def read(self, name: str, *words: str, point: str = "", **environment: str) -> Reading:
        """Start ``logpipeline consume`` as consumer *name*; with *point* it dies there."""
        return self.command("consume", name, *words, point=point, **environment)

    def command(self, *words: str, point: str = "", **environment: str) -> Reading:
        """Start ``logpipeline`` with *words* on this pipeline; with *point* it dies there."""
        out = self._next_out()
        command = [*words, "-f", str(self.file)]
        with out.open("wb") as file, out.with_suffix(".log").open("wb") as log:
            process = warm.start(
                command,
                stdout=file,
                stderr=log,
                cwd=self.folder,
                env=self._environment({VARIABLE: point, **environment}),
            )
        return self._noted(process, out)

    def start(self, command: list[str], **environment: str) -> Reading:
        """Start *command* in the pipeline's folder, with the server where users name it."""
        out = self._next_out()
        with out.open("wb") as file, out.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=log,
                start_new_session=True,
                env=self._environment(environment),
            )
        return self._noted(process, out)

    async def is_caught_up(self, name: str) -> bool:
        """Whether consumer *name* has nothing left: all was delivered and acknowledged."""
        try:
            found = [await self.consumer(name, number) for number in range(PARTITIONS)]
        except ApiError as error:
            # A reader makes its consumers one after the other, and may be killed in between.
            if error.err_code != CONSUMER_NOT_FOUND:
                raise
            return False
        return not any(one["num_pending"] + one["num_ack_pending"] for one in found)

    async def caught_up(self, name: str) -> None:
        """Return once consumer *name* has nothing left."""
        await eventually(
            lambda: self.is_caught_up(name), within_s=COMMAND_S, what=f"{name} is caught up"
        )

    async def consumer(self, name: str, partition: int = 0) -> dict[str, Any]:
        """What the server says of a consumer."""
        return dict(await self.js.call(f"CONSUMER.INFO.LOGS_{partition}.{name}"))

    def run(self, *words: str, code: int = 0) -> str:
        """What another command on this pipeline prints, which ends with *code*."""
        here = ("-f", str(self.file), "--nats", self.server.url)
        done = warm.run_text([*words, *here], timeout_s=COMMAND_S)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _next_out(self) -> Path:
        return self.folder / f"out-{len(self.readers)}"

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "NATS_URL": self.server.url, "PATH": path, **more}

    def _noted(self, process: warm.AnyProcess, out: Path) -> Reading:
        reading = Reading(process, out)
        self.readers.append(reading)
        return reading


@dataclass
class Reading:
    """A running ``logpipeline consume``, and what it printed."""

    process: warm.AnyProcess
    out: Path

    @property
    def lines(self) -> list[str]:
        """The lines that it printed."""
        return self.out.read_text().splitlines()

    @property
    def log(self) -> str:
        """What it said on standard error."""
        return self.out.with_suffix(".log").read_text()

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.process.poll() is not None

    async def until(self, count: int) -> None:
        """Return once it has printed so many lines."""
        await eventually(lambda: len(self.lines) >= count, what=f"{count} lines, {self.log[-500:]}")

    async def says(self, text: str, *, within_s: float = COMMAND_S) -> None:
        """Return once *text* is in its log."""
        await eventually(lambda: text in self.log, within_s=within_s, what=text)

    async def ends(self, code: int, *, within_s: float = COMMAND_S) -> str:
        """Return what it said, once it has ended with *code*."""
        await eventually(lambda: self.has_ended, within_s=within_s)
        assert self.process.returncode == code, self.log
        return self.log

    def kill(self) -> None:
        """End it as a crash would, with what it started."""
        if not self.has_ended:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def stop(self) -> None:
        """Ask it to end, and see it end well."""
        self.process.terminate()
        await self.ends(0)


@asynccontextmanager
async def streams_on(server: EmbeddedServer, folder: Path, **spec: Any) -> AsyncIterator[Streams]:
    """Make the streams of a pipeline with *spec*, and end all readers afterwards."""
    folder.mkdir(exist_ok=True)
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "reading"},
        "spec": {
            "subject": "logs",
            "partitions": PARTITIONS,
            "stream": {"name": "LOGS", "maxBytes": "64Mi"},
            "collectors": {"takeoverAfter": f"{TAKEOVER_S}s"},
            **spec,
        },
    }
    (folder / "logpipeline.yaml").write_text(yaml.safe_dump(resource))
    async with streams_of(server, folder) as streams:
        yield streams


@asynccontextmanager
async def streams_of(server: EmbeddedServer, folder: Path) -> AsyncIterator[Streams]:
    """Make the streams of the pipeline in *folder*, and end all readers afterwards."""
    connection = Connection(NatsOptions(servers=(server.url,)))
    await connection.start(patience_s=WITHIN_S)
    streams = Streams(server, folder, folder / "logpipeline.yaml", JetStream(connection))
    await asyncio.to_thread(streams.run, "apply")
    try:
        yield streams
    finally:
        for reading in streams.readers:
            reading.kill()
        await connection.close()


def in_order(lines: Sequence[str]) -> bool:
    """Return whether each host's lines come in their order, each once."""
    seen: dict[str, list[int]] = {}
    for line in lines:
        host, number = line.split(" ")
        seen.setdefault(host, []).append(int(number))
    return all(numbers == list(range(len(numbers))) for numbers in seen.values())


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
