"""A pipeline of three partitions whose readers give messages up, applied and collected by the
commands that users have.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import warm
from components.component import Component
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.assignment import ensure_assigned
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream, PubAck
from logpipeline.nats.pull import PullReader
from logpipeline.partition import partition_of
from logpipeline.spec import LogPipeline, load
from logpipeline.subjects import Subjects, is_advisory
from logpipeline.wire import Batch, encode_headers, message_id, source_key
from waiting import WITHIN_S, eventually

PARTITIONS = 3
# One host of each partition.
HOSTS = tuple(
    next(f"h{number}" for number in range(99) if partition_of(f"h{number}", PARTITIONS) == wanted)
    for wanted in range(PARTITIONS)
)
AUDIT = {"name": "audit", "ackWait": "100ms", "maxDeliver": 3}
PULL_BYTES = 1_000_000


@dataclass(eq=False)
class Lettered:
    """The pipeline, a connection of the test's own, and its one collector, which does not run."""

    server: EmbeddedServer
    js: JetStream
    pipeline: LogPipeline
    file: Path
    data: Path
    collector: Component

    @property
    def here(self) -> tuple[str, ...]:
        """The words that name the pipeline."""
        return ("-f", str(self.file), "--data", str(self.data), "--nats", self.server.url)

    def run(self, *words: str, code: int = 0, **environment: str) -> str:
        """Return what the command prints, which ends with *code*."""
        done = warm.run_text(
            [*words, *self.here], env={**os.environ, **environment}, timeout_s=WITHIN_S
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    async def send(self, partition: int, data: bytes, start: int = 0, **changes: Any) -> PubAck:
        """Publish *data* as a batch of the plain file of the partition's host."""
        host = HOSTS[partition]
        batch = Batch(
            source="/var/log/app.log",
            generation="0123456789abcdef",
            start=start,
            end=start + len(data),
            lines=data.count(b"\n"),
            format="plain",
            **changes,
        )
        identifier = message_id(source_key("test", host, batch.source), batch)
        return await self.publish(partition, data, encode_headers(batch, identifier))

    async def publish(
        self, partition: int, data: bytes, headers: dict[str, str] | None = None
    ) -> PubAck:
        """Publish what the partition's host might."""
        subject = Subjects(self.pipeline.names.subject, PARTITIONS).of_host(HOSTS[partition])
        return await self.js.publish(subject, data, headers)

    async def read(
        self, partition: int, answer: bytes = b"", *, until: int = 1, consumer: str = "audit"
    ) -> None:
        """Be a reader that gives *answer* to each delivery, none if empty, until *until* letters or
        advisories are there.
        """
        reader = PullReader(
            self.js, self.pipeline.names.stream(partition), consumer, pull_bytes=PULL_BYTES
        )
        await reader.open()

        async def is_given_up() -> bool:
            for delivered in await reader.take(timeout_s=0.1):
                if answer:
                    reply = delivered.message.reply.decode()
                    await self.js.connection.publish(reply, answer)
            return await self.stored() >= until

        try:
            await eventually(is_given_up, what="messages are given up")
        finally:
            await reader.close()
            # Only an answer shows that the server knows: else its open pulls take what follows.
            await self.js.account()

    async def stored(self) -> int:
        """Return how many letters and advisories there are."""
        info = await self.js.stream_info(self.pipeline.names.dead_letter_stream)
        assert info is not None
        return int(info["state"]["messages"])

    async def until_letters(self, count: int) -> None:
        """Return when there are exactly *count* letters, and no advisory is left."""

        async def are_there() -> bool:
            name = self.pipeline.names.dead_letter_stream
            info = await self.js.call(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            counts: dict[str, int] = info["state"].get("subjects") or {}
            is_settled = not any(is_advisory(name) for name in counts)
            return is_settled and sum(counts.values()) == count

        await eventually(are_there, what=f"{count} letters")


@asynccontextmanager
async def lettered(
    server: EmbeddedServer, folder: Path, *consumers: dict[str, Any], **spec: Any
) -> AsyncIterator[Lettered]:
    """Apply the pipeline at *server*, and give its partitions to the collector."""
    file, data = folder / "pipeline.yaml", folder / "data"
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "app"},
        "spec": {
            "subject": "app",
            "partitions": PARTITIONS,
            "stream": {"name": "APP"},
            "consumers": list(consumers or (AUDIT,)),
            "collectors": {"replicas": 1, "takeoverAfter": "2s"},
            **spec,
        },
    }
    file.write_text(yaml.safe_dump(resource))
    connection = Connection(NatsOptions(servers=(server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js, pipeline = JetStream(connection), load(file)
    here = ("-f", str(file), "--data", str(data), "--nats", server.url)
    collector = Component(
        "collector", ["collect", *here, "--member", "collector-0"], folder / "collector.log"
    )
    made = Lettered(server, js, pipeline, file, data, collector)
    try:
        made.run("apply")
        bucket = Bucket(js, pipeline.names.state_bucket)
        await ensure_assigned(bucket, pipeline, ["collector-0"])
        yield made
    finally:
        collector.kill()
        await connection.close()
