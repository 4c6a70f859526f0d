"""The books balance though nothing new is written: what the server lost is sent again, and what is
gone for good is named, to the byte, with its cause.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components import balanced
from components.balanced import HOST, STREAM, Node, a_node, make_anew, purge
from components.collecting import PARTITIONS
from components.shipping import append, batch_of, config_of, lines_of, shipping, stored
from logpipeline.embedded import EmbeddedServer
from logpipeline_shipper.files.listing import HostSources
from waiting import WITHIN_S, eventually


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in a cluster."""
    balanced.hurry(monkeypatch)


@pytest.fixture
async def node(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Node]:
    """Return a node whose collector was not started yet."""
    async with a_node(nats_server, tmp_path) as made:
        yield made


@pytest.mark.parametrize("lose", [purge, make_anew])
async def test_what_a_server_lost_while_collectors_were_away_is_sent_again(
    node: Node, lose: Any
) -> None:
    """Nobody writes another line."""
    append(node.live, lines_of(0, 300))
    async with shipping(node.shipper()):
        await node.until_sent(len(lines_of(0, 300)))
        await lose(node.made)
        async with node.collector():
            await node.until_collected(lines_of(0, 300))
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
        await lose(node.made)
        async with node.collector():
            causes = await node.until_lost(len(old + new))
            await node.until_settled()

    assert causes <= {"removed", "rolled-back"}
    assert node.collected() == b""


async def test_a_loss_is_named_by_a_shipper_that_was_down_meanwhile(node: Node) -> None:
    """It remembers what it sent."""
    append(node.live, lines_of(0, 300))
    async with shipping(node.shipper()):
        await node.until_sent(len(lines_of(0, 300)))
    await purge(node.made)
    node.live.unlink()
    async with node.collector(), shipping(node.shipper()):
        assert await node.until_lost(len(lines_of(0, 300))) == {"removed"}
        await node.until_settled()


@pytest.mark.parametrize("lines", [2000, 60_000])
async def test_only_what_is_gone_is_named(node: Node, lines: int) -> None:
    """Half of the messages were collected, some were deleted one by one, and the file is there: a
    few holes, and hundreds.
    """
    written = lines_of(0, lines)
    async with shipping(node.shipper()):
        append(node.live, written)
        await node.until_sent(len(written))
        info = await node.made.js.stream_info(STREAM)
        assert info is not None
        last = info["state"]["last_seq"]
        assert last > 4
        for sequence in range(1, last + 1, 2):
            await node.made.js.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})
        async with node.collector():
            await node.until_all_lines(written)
            await node.until_settled()

            assert await node.losses() == []


async def test_what_was_rotated_away_unread_is_named(node: Node) -> None:
    """Its length was seen, its bytes were not."""
    async with shipping(node.shipper()), node.collector():
        append(node.live, lines_of(0, 10))
        await node.until_collected(lines_of(0, 10))
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
async def test_two_machines_that_claim_one_host_are_both_collected(
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
    collected = node.folder / "c" / "logs" / HOST / "shop" / "web-1" / "app.log"

    async def are_there(*texts: str) -> None:
        def is_it() -> bool:
            return collected.exists() and set(texts) <= set(collected.read_text().splitlines())

        await eventually(is_it, what=f"{texts} are collected")

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

    lines = collected.read_text().splitlines()
    assert all(lines.count(text) == 1 for text in wanted)
    assert lines.count("# the same header") == (1 if is_known else 2)


FILES = 40


def rotated(node: Node, number: int) -> bytes:
    """Write the file *number* of many, the oldest first; return what stands in it."""
    written = lines_of(100 * number, 100 * number + 50)
    append(node.live, written)
    if number < FILES - 1:
        node.live.rename(node.live.with_suffix(f".log.{FILES - 1 - number}"))
    return written


async def sent_twice(node: Node) -> list[tuple[str, int]]:
    """Return which beginnings of batches the server has more than once."""
    batches = [batch_of(message) for message in await stored(node.made.js, STREAM)]
    counts = Counter((batch.generation, batch.start) for batch in batches)
    return [begin for begin, count in counts.items() if count > 1]


async def test_many_files_that_collectors_were_away_for_are_confirmed_and_not_sent_again(
    node: Node,
) -> None:
    """Each is asked for by its name, however many came after it."""
    written = b"".join(rotated(node, number) for number in range(FILES))
    async with shipping(node.shipper()):
        await node.until_sent(len(written))
        async with node.collector():
            await node.until_collected(written)
            await node.until_settled()

            assert await sent_twice(node) == []


async def test_a_shipper_that_lost_its_state_knows_each_of_many_files_again(node: Node) -> None:
    """Collectors tell of all that they have, not only of the newest."""
    written = b"".join(rotated(node, number) for number in range(FILES))
    async with node.collector():
        async with shipping(node.shipper()):
            await node.until_collected(written)
            await node.until_settled()
        info = await node.made.js.stream_info(STREAM)
        shutil.rmtree(node.folder / "data")
        append(node.live, b"the last line\n")
        async with shipping(replace(node.shipper(), recall_s=WITHIN_S)):
            await node.until_collected(written + b"the last line\n")
            await node.until_settled()

        after = await node.made.js.stream_info(STREAM)
        assert info is not None
        assert after is not None
        assert after["state"]["last_seq"] == info["state"]["last_seq"] + 1


@pytest.mark.parametrize("is_written_on", [False, True])
async def test_what_is_missing_is_sent_by_a_shipper_that_lost_its_state(
    node: Node, *, is_written_on: bool
) -> None:
    """A message went before it was collected, and the shipper that sent it knows nothing any
    more. The bytes are in the file; also where lines were written meanwhile.
    """
    parts = [lines_of(number, number + 20) for number in (0, 20, 40)]
    for number, part in enumerate(parts):
        async with shipping(node.shipper()):
            append(node.live, part)
            await node.until_sent(len(b"".join(parts[: number + 1])))
    await node.made.js.call(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 2})
    shutil.rmtree(node.folder / "data")
    written = b"".join(parts)
    if is_written_on:
        append(node.live, b"the last line\n")
        written += b"the last line\n"
    async with node.collector():
        await node.made.until_committed(3)
        async with shipping(replace(node.shipper(), recall_s=WITHIN_S)):
            await node.until_all_lines(written)
            await node.until_settled()

        assert await sent_twice(node) == []
        assert await node.losses() == []
