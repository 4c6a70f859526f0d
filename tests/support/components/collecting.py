"""A small pipeline for tests of collectors: streams, state bucket, assignment, and lines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import warm
from components.contents import content_of
from components.partition_files import config_of
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.nats.bucket import Bucket, bucket_stream_config
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream, PubAck
from logpipeline.observe.logs import setup
from logpipeline.records import (
    SUCCESSION_HEADER,
    Assignment,
    EpochRecord,
    assign,
    assignment_key,
    epoch_key,
)
from logpipeline.subjects import ControlSubjects, Names, Subjects
from logpipeline.wire import Batch, encode_headers, message_id, source_key
from logpipeline_collector import stream_reader
from logpipeline_collector.config import CollectorConfig
from logpipeline_collector.service import run
from waiting import WITHIN_S, eventually

PARTITIONS = 2
# Of these, fnv1a_32 % 2 is 0 for the first and 1 for the second.
HOSTS = ("node-b", "node-a")
GROUP = "main"
STREAM_BASE = "LOGS"
BUCKET = "state"
GENERATION = "0123456789abcdef"


def config_for(
    server: EmbeddedServer | str, folder: Path, member: str = "collector-0", **changes: Any
) -> CollectorConfig:
    """Return the configuration of a quick collector with *folder*."""
    url = server if isinstance(server, str) else server.url
    config = CollectorConfig(
        nats=NatsOptions(servers=(url,)),
        subjects=Subjects("logs", PARTITIONS),
        control=ControlSubjects("_lp.logs"),
        names=Names("logs", STREAM_BASE),
        state_bucket=BUCKET,
        snapshot_stream="SNAPSHOTS",
        snapshot_root="_lp-snapshots",
        dead_letter_root="_lp-dead",
        dead_letter_stream="DEAD",
        group=GROUP,
        member=member,
        files=config_of(folder, group=GROUP),
        commit_interval_s=0.02,
        takeover_after_s=1.0,
        snapshot_every_s=0.5,
    )
    return replace(config, **changes)


@dataclass
class Source:
    """One plain file of one host, as its shipper sends it."""

    host: str
    path: str = "/var/log/app.log"
    generation: str = GENERATION
    offset: int = 0
    partitions: int = PARTITIONS
    sent: bytes = b""
    batches: list[tuple[Batch, bytes]] = field(default_factory=list)

    def batch(self, lines: bytes) -> Batch:
        """Return the headers of the next batch, which holds *lines*."""
        return Batch(
            source=self.path,
            generation=self.generation,
            start=self.offset,
            end=self.offset + len(lines),
            lines=lines.count(b"\n"),
            format="plain",
        )

    async def send(self, js: JetStream, *lines: str, **more: str) -> PubAck:
        """Publish *lines* as one batch, with *more* headers, and remember that they are to be
        written.
        """
        data = "".join(f"{line}\n" for line in lines).encode()
        batch = self.batch(data)
        self.batches.append((batch, data))
        self.offset = batch.end
        self.sent += data
        return await self.send_again(js, len(self.batches) - 1, **more)

    async def send_again(
        self, js: JetStream, number: int, attempt: str = "", **more: str
    ) -> PubAck:
        """Publish batch *number* once more, with *more* headers; without an *attempt* the server
        knows its id.
        """
        batch, data = self.batches[number]
        identifier = message_id(source_key("test", self.host, self.path), batch, attempt=attempt)
        batch = replace(batch, resend=bool(attempt))
        subject = Subjects("logs", self.partitions).of_host(self.host)
        return await js.publish(subject, data, encode_headers(batch, identifier) | more)

    def written(self, folder: Path) -> bytes:
        """Return what was written in *folder*, also to a file that is too new to have its name."""
        new = sorted((folder / "state" / GROUP).glob("p*.new/*"))
        return self.collected(folder) + b"".join(path.read_bytes() for path in new)

    def collected(self, *folders: Path) -> bytes:
        """Return what stands in the files of *folders*, one folder after the other, and in each the
        files that were set aside first.
        """
        actives = [folder / "logs" / self.host / "_files" / self.path[1:] for folder in folders]
        parts = [part for active in actives for part in [*_rotated(active), active]]
        return b"".join(map(content_of, parts))


def _rotated(active: Path) -> list[Path]:
    try:
        return sorted(active.parent.glob(f"{active.name}.*"))
    except FileNotFoundError:
        return []  # its folder was empty, and was removed while we looked


@dataclass
class Pipeline:
    """What an operator would have made, and a connection of the test's own."""

    js: JetStream
    bucket: Bucket
    partitions: int = PARTITIONS
    generation: int = 0

    async def assign(self, *members: str) -> Assignment:
        """Give the partitions to *members*."""
        self.generation += 1
        made = assign(list(members), partitions=self.partitions, generation=self.generation)
        await self.bucket.put(assignment_key(GROUP), made.encode())
        return made

    async def epoch(self, partition: int = 0) -> EpochRecord | None:
        """Return the epoch record of *partition*."""
        entry = await self.bucket.get(epoch_key(GROUP, partition))
        if entry is None:
            return None
        return EpochRecord.decode(entry.value, entry.header(SUCCESSION_HEADER))

    async def committed(self, partition: int = 0) -> int:
        """Return the committed sequence of *partition*."""
        record = await self.epoch(partition)
        return record.position.sequence if record else 0

    async def until_committed(self, sequence: int, partition: int = 0) -> None:
        """Return when *partition* is committed up to *sequence*."""

        async def is_committed() -> bool:
            return await self.committed(partition) >= sequence

        what = f"partition {partition} committed to {sequence}"
        await eventually(is_committed, what=what)

    async def commit_one(self, server: EmbeddedServer, folder: Path, source: Source) -> None:
        """Have ``collector-0`` commit the line ``one`` of *source* in *folder*, and end."""
        await self.assign("collector-0")
        async with collecting(config_for(server, folder, "collector-0")):
            await source.send(self.js, "one")
            await self.until_committed(1)

    async def until_owned(self, partition: int, member: str) -> None:
        """Return when *member* has taken *partition*."""

        async def is_owned() -> bool:
            record = await self.epoch(partition)
            return record is not None and record.owner == member and not record.released

        await eventually(is_owned, what=f"{member} has partition {partition}")

    async def dead_letters(self) -> list[dict[str, str]]:
        """Return the headers of all dead letters."""
        info = await self.js.stream_info("DEAD")
        assert info is not None
        letters = []
        for sequence in range(1, info["state"]["last_seq"] + 1):
            stored = await self.js.message("DEAD", sequence)
            if stored is not None:
                rows = stored.headers.decode().split("\r\n")[1:]
                letters.append(dict(row.split(": ", 1) for row in rows if ": " in row))
        return letters


@asynccontextmanager
async def pipeline(
    server: EmbeddedServer, partitions: int = PARTITIONS, *, is_single: bool = False
) -> AsyncIterator[Pipeline]:
    """Make streams, or the single one, and bucket on *server*, and connect to it."""
    connection = Connection(NatsOptions(servers=(server.url,), name="test"))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    try:
        for config in _streams(partitions, is_single=is_single):
            await js.call(f"STREAM.CREATE.{config['name']}", config)
        yield Pipeline(js, Bucket(js, BUCKET), partitions)
    finally:
        await connection.close()


def log_stream(partition: int, partitions: int = PARTITIONS) -> dict[str, Any]:
    """Return the configuration of a partition's stream."""
    return {
        "name": f"{STREAM_BASE}_{partition}",
        "subjects": [Subjects("logs", partitions).of_partition(partition)],
        "storage": "file",
        "allow_direct": True,
        "max_bytes": 256 * 1024 * 1024,
        "discard": "new",
    }


def _streams(partitions: int, *, is_single: bool) -> list[dict[str, Any]]:
    logs = [log_stream(partition, partitions) for partition in range(partitions)]
    if is_single:
        subjects = Subjects("logs", partitions).of_single_stream()
        logs = [{**logs[0], "name": STREAM_BASE, "subjects": subjects}]
    return [
        *logs,
        dict(bucket_stream_config(BUCKET, replicas=1, storage="file", max_bytes=1 << 24)),
        {"name": "SNAPSHOTS", "subjects": ["_lp-snapshots.>"], "allow_direct": True},
        {"name": "DEAD", "subjects": ["_lp-dead.>"], "allow_direct": True, "discard": "old"},
    ]


@asynccontextmanager
async def collecting(config: CollectorConfig) -> AsyncIterator[asyncio.Task[int]]:
    """Run a collector in this process, and stop it in order at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(config, stop))
    try:
        yield task
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await asyncio.wait([task])


class CollectorProcess:
    """A collector as a process of its own, to kill, suspend and die at a failpoint."""

    def __init__(
        self,
        server: EmbeddedServer,
        folder: Path,
        member: str,
        failpoint: str = "",
        **changes: float | str,
    ) -> None:
        words = [str(folder), member, server.url, json.dumps(changes)]
        self._log = (folder.parent / f"{folder.name}-{member}.log").open("ab")
        self._process = warm.start(
            words,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | {VARIABLE: failpoint},
            target=f"{__name__}:main",
        )

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def suspend(self) -> None:
        """Stop it where it stands."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._process.wait, 30)

    def __enter__(self) -> CollectorProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._log.close()


def main() -> int:
    """Be such a process."""
    setup("collector", "json")
    return asyncio.run(_serve())


async def _serve() -> int:
    folder, member, url, changes = sys.argv[1:]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    given = json.loads(changes)
    if partitions := given.pop("partitions", None):
        given["subjects"] = Subjects("logs", partitions)
    if silence_s := given.pop("single_stream_silence_s", None):
        given["names"] = Names("logs", STREAM_BASE, is_single=True)
        stream_reader.SILENCE_BEFORE_LOOK_S = silence_s
    config = config_for(url, Path(folder), member, **given)
    return await run(config, stop)
