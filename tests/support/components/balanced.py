"""A machine with a shipper, a server and a collector in this process, whose books are looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.collecting import (
    HOSTS,
    PARTITIONS,
    Pipeline,
    collecting,
    config_for,
    log_stream,
    pipeline,
)
from components.contents import content_of
from components.shipping import config_of
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import NoResponders, NotSent
from logpipeline_collector import stream_reader
from logpipeline_shipper import account, progress, resend
from logpipeline_shipper.config import ShipperConfig
from logpipeline_shipper.files.listing import HostSources
from waiting import eventually

HOST = HOSTS[0]
STREAM = "LOGS_0"


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in a cluster."""
    monkeypatch.setattr(progress, "ASK_AFTER_S", 0.2)
    monkeypatch.setattr(account, "DRAINED_S", 0.5)
    monkeypatch.setattr(resend, "TRY_INTERVAL_S", 1.0)
    monkeypatch.setattr(stream_reader, "SILENCE_BEFORE_LOOK_S", 0.2)


@dataclass
class Node:
    """A shipper's machine, the server, and a collector's folder."""

    server: EmbeddedServer
    made: Pipeline
    folder: Path

    @property
    def live(self) -> Path:
        """The file that is written to."""
        return self.folder / "logs" / "app.log"

    def shipper(self) -> ShipperConfig:
        hosts = (HostSources(host=HOST, include=(f"{self.live.parent}/*.log",)),)
        return config_of(self.folder, self.server.url, partitions=PARTITIONS, hosts=hosts)

    @asynccontextmanager
    async def collector(self) -> AsyncIterator[None]:
        async with collecting(config_for(self.server, self.folder / "c")):
            yield

    def collected(self) -> bytes:
        """Return what is collected of the file."""
        return content_of(self.folder / "c" / "logs" / HOST / "_files" / str(self.live)[1:])

    async def until_collected(self, expected: bytes) -> None:
        async def is_it() -> bool:
            return self.collected() == expected

        await eventually(is_it, what=f"{len(expected)} bytes are collected")

    async def until_all_lines(self, expected: bytes) -> None:
        """Return when each line of *expected* is collected once, in whatever order."""
        lines = sorted(expected.splitlines())

        async def is_it() -> bool:
            return sorted(self.collected().splitlines()) == lines

        await eventually(is_it, what="all lines are collected")

    async def until_sent(self, size: int) -> None:
        """Return when the server has taken *size* bytes that no collector has confirmed."""

        async def is_it() -> bool:
            return bool((await self.ask("shipper"))["on_the_way_bytes"] == size)

        await eventually(is_it, what="everything is sent")

    async def ask(self, component: str) -> dict[str, Any]:
        """Return what *component* says of itself, once it is there."""

        async def answer() -> bytes:
            try:
                subject = f"_lp.logs.status.{component}"
                return (await self.made.js.connection.request(subject, b"")).data
            except (NoResponders, NotSent):
                return b""

        return dict(json.loads(await eventually(answer)))

    async def losses(self) -> list[dict[str, Any]]:
        """Return what the collector was told of as lost, of the first partition."""
        partitions = (await self.ask("collector"))["partitions"]
        assert len(partitions) == PARTITIONS, "the collector has not taken all of them yet"
        first = partitions[0]
        losses = [dict(row) for row in first.get("losses", [])]
        assert first.get("lost_bytes", 0) == sum(row["end"] - row["start"] for row in losses)
        return losses

    async def until_lost(self, expected: int) -> set[str]:
        """Return the causes, once *expected* bytes are named as lost."""

        async def is_it() -> bool:
            found: int = sum(row["end"] - row["start"] for row in await self.losses())
            return found == expected

        await eventually(is_it, what=f"{expected} bytes are named as lost")
        return {row["cause"] for row in await self.losses()}

    async def until_settled(self) -> None:
        """Return when nothing of any source is open."""

        async def is_it() -> bool:
            told = await self.ask("shipper")
            return not (told["on_the_way_bytes"] or told["to_be_named_bytes"])

        await eventually(is_it, what="the shipper's books are settled")


@asynccontextmanager
async def a_node(server: EmbeddedServer, folder: Path) -> AsyncIterator[Node]:
    """Make the streams of a node whose collector is still to be started."""
    async with pipeline(server) as made:
        await made.assign("collector-0")
        yield Node(server, made, folder)


async def purge(made: Pipeline) -> None:
    """Remove all messages."""
    await made.js.call(f"STREAM.PURGE.{STREAM}")


async def make_anew(made: Pipeline) -> None:
    """Delete the stream, and make it again."""
    await made.js.call(f"STREAM.DELETE.{STREAM}")
    await made.js.call(f"STREAM.CREATE.{STREAM}", log_stream(0))
