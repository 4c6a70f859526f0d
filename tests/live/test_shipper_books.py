"""The books balance though nothing new is written: what the server lost is sent again, and what is
gone for good is named, to the byte, with its cause.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collecting import (
    HOSTS,
    PARTITIONS,
    Pipeline,
    collecting,
    config_for,
    log_stream,
    pipeline,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import NoResponders, NotSent
from logpipeline_collector import reading
from logpipeline_shipper import account, healing, progress
from logpipeline_shipper.config import ShipperConfig
from logpipeline_shipper.files.sources import HostSources
from shipping import append, config_of, lines_of, shipping
from waiting import eventually

HOST = HOSTS[0]
STREAM = "LOGS_0"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in a cluster."""
    monkeypatch.setattr(progress, "ASK_AFTER_S", 0.2)
    monkeypatch.setattr(account, "DRAINED_S", 0.5)
    monkeypatch.setattr(healing, "TRY_INTERVAL_S", 1.0)
    monkeypatch.setattr(reading, "SILENCE_BEFORE_LOOK_S", 0.2)


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

    def archived(self) -> bytes:
        """Return what is archived of the file."""
        active = self.folder / "c" / "logs" / HOST / "_files" / str(self.live)[1:]
        return active.read_bytes() if active.exists() else b""

    async def until_archived(self, expected: bytes) -> None:
        async def is_it() -> bool:
            return self.archived() == expected

        await eventually(is_it, what=f"{len(expected)} bytes are archived")

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
        (first, _) = (await self.ask("collector"))["partitions"]
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


@pytest.fixture
async def node(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Node]:
    """Return a node whose collector was not started yet."""
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        yield Node(nats_server, made, tmp_path)


async def purge(node: Node) -> None:
    await node.made.js.call(f"STREAM.PURGE.{STREAM}")


async def make_anew(node: Node) -> None:
    await node.made.js.call(f"STREAM.DELETE.{STREAM}")
    await node.made.js.call(f"STREAM.CREATE.{STREAM}", log_stream(0))


@pytest.mark.parametrize("lose", [purge, make_anew])
async def test_what_a_server_lost_while_collectors_were_away_is_sent_again(
    node: Node, lose: Any
) -> None:
    """Nobody writes another line."""
    append(node.live, lines_of(0, 300))
    async with shipping(node.shipper()):
        await node.until_sent(len(lines_of(0, 300)))
        await lose(node)
        async with node.collector():
            await node.until_archived(lines_of(0, 300))
            await node.until_settled()

            assert await node.losses() == []


@pytest.mark.parametrize("lose", [purge, make_anew])
async def test_what_a_server_lost_and_no_file_has_is_named_to_the_byte(
    node: Node, lose: Any
) -> None:
    """Also where several files are gone, and nothing is ever written again."""
    old, new = lines_of(0, 200), lines_of(200, 500)
    async with shipping(node.shipper()):
        append(node.live, old)
        await node.until_sent(len(old))
        node.live.rename(node.live.with_suffix(".log.1"))
        append(node.live, new)
        await node.until_sent(len(old + new))
        for path in node.live.parent.iterdir():
            path.unlink()
        await lose(node)
        async with node.collector():
            causes = await node.until_lost(len(old + new))
            await node.until_settled()

    assert causes <= {"removed", "rolled-back"}
    assert node.archived() == b""


async def test_a_loss_is_named_by_a_shipper_that_was_down_meanwhile(node: Node) -> None:
    """It remembers what it sent."""
    append(node.live, lines_of(0, 300))
    async with shipping(node.shipper()):
        await node.until_sent(len(lines_of(0, 300)))
    await purge(node)
    node.live.unlink()
    async with node.collector(), shipping(node.shipper()):
        assert await node.until_lost(len(lines_of(0, 300))) == {"removed"}
        await node.until_settled()


async def test_only_what_is_gone_is_named(node: Node) -> None:
    """Half of the messages were archived, some were deleted one by one, and the file is there."""
    async with shipping(node.shipper()):
        append(node.live, lines_of(0, 2000))
        await node.until_sent(len(lines_of(0, 2000)))
        info = await node.made.js.stream_info(STREAM)
        assert info is not None
        last = info["state"]["last_seq"]
        assert last > 4
        for sequence in range(1, last + 1, 2):
            await node.made.js.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})
        async with node.collector():

            async def is_all_there() -> bool:
                return sorted(node.archived().splitlines()) == sorted(
                    lines_of(0, 2000).splitlines()
                )

            await eventually(is_all_there, what="all lines are archived")
            await node.until_settled()

            assert await node.losses() == []


async def test_what_was_rotated_away_unread_is_named(node: Node) -> None:
    """Its length was seen, its bytes were not."""
    async with shipping(node.shipper()), node.collector():
        append(node.live, lines_of(0, 10))
        await node.until_archived(lines_of(0, 10))
    known = lines_of(0, 10)
    append(node.live, lines_of(10, 30))
    await node.server.stop()
    async with shipping(node.shipper()):
        await eventually(lambda: _has_seen(node, len(lines_of(0, 30))), what="the length is seen")
    node.live.unlink()
    await node.server.start()
    async with shipping(node.shipper()), node.collector():
        assert await node.until_lost(len(lines_of(0, 30)) - len(known)) == {"rotated"}


def _has(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


def _has_seen(node: Node, size: int) -> bool:
    saved = (node.folder / "data" / "positions").read_text()
    return str(size) in saved


def container_log(folder: Path, *texts: str) -> None:
    """Write a container's log, with the same times on every machine."""
    path = folder / "shop_web-1_u1" / "app" / "0.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"2026-11-22T10:00:00.000000001Z stdout F {text}\n" for text in texts)


@pytest.mark.parametrize("is_known", [False, True])
async def test_two_machines_that_claim_one_host_are_both_archived(
    node: Node, is_known: bool
) -> None:
    """Same name, same path, same first line; also where the second one is told what the first one
    has sent, and finds it in its own file.
    """
    folders = [node.folder / name for name in ("one", "two")]
    configs = [
        config_of(
            node.folder,
            node.server.url,
            partitions=PARTITIONS,
            hosts=(HostSources(host=HOST, pods_dir=folder),),
            data=node.folder / f"data-{folder.name}",
            recall_s=5.0 if is_known else 0.0,
        )
        for folder in folders
    ]
    for folder in folders:
        container_log(folder, "# the same header")
    archive = node.folder / "c" / "logs" / HOST / "shop" / "web-1" / "app.log"

    async def are_there(*texts: str) -> None:
        def is_it() -> bool:
            return archive.exists() and set(texts) <= set(archive.read_text().splitlines())

        await eventually(is_it, what=f"{texts} are archived")

    async with node.collector(), shipping(configs[0]):
        await are_there("# the same header")
        async with shipping(configs[1]):
            if is_known:
                # The second one has found in its file what the first one has sent.
                positions = node.folder / "data-two" / "positions"
                await eventually(lambda: _has(positions, "shop/web-1"), what="it was looked at")
            for number in range(100):
                container_log(folders[0], f"one {number}")
                container_log(folders[1], f"two {number}, longer")
            wanted = [f"one {n}" for n in range(100)] + [f"two {n}, longer" for n in range(100)]
            await are_there(*wanted)
            await node.until_settled()

    lines = archive.read_text().splitlines()
    assert all(lines.count(text) == 1 for text in wanted)
    assert lines.count("# the same header") == (1 if is_known else 2)
