"""A pipeline that was deleted and made anew under its name finds the data folder of the former one
on each node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from components import balanced
from components.balanced import Node, a_node, make_anew
from components.collecting import BUCKET, GROUP
from components.shipping import append, lines_of, shipping
from logpipeline.embedded import EmbeddedServer
from logpipeline.records import epoch_root
from logpipeline.subjects import key_value_subject


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in a cluster."""
    balanced.hurry(monkeypatch)


@pytest.fixture
async def node(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Node]:
    """Return a node on which a first pipeline has collected some lines, rotated ones among them."""
    async with a_node(nats_server, tmp_path) as node:
        async with shipping(replace(node.shipper(), pipeline_uid="first")), node.collector():
            append(node.live, lines_of(0, 100))
            await node.until_collected(lines_of(0, 100))
            node.live.rename(node.live.with_suffix(".log.1"))
            append(node.live, lines_of(100, 200))
            await node.until_collected(lines_of(0, 200))
            await node.until_settled()
        yield node


async def test_a_new_pipeline_begins_at_the_beginning(node: Node) -> None:
    """It has collected nothing: what the former one had read says nothing, nor do rotated files."""
    await make_anew(node.made)
    state = key_value_subject(BUCKET, f"{epoch_root(GROUP)}.>")
    await node.made.js.call(f"STREAM.PURGE.KV_{BUCKET}", {"filter": state})
    (node.folder / "c").rename(node.folder / "former")

    async with node.collector(), shipping(replace(node.shipper(), pipeline_uid="second")):
        append(node.live, lines_of(200, 300))

        await node.until_collected(lines_of(0, 300))


async def test_streams_and_files_that_were_kept_are_gone_on_with(node: Node) -> None:
    """Collectors say what they have, and no line comes twice."""
    append(node.live, lines_of(200, 300))
    config = replace(node.shipper(), pipeline_uid="second", recall_lost_s=30.0)

    async with node.collector(), shipping(config):
        await node.until_collected(lines_of(0, 300))
        await node.until_settled()

        assert node.collected() == lines_of(0, 300)


async def test_the_same_pipeline_goes_on_at_its_positions(node: Node) -> None:
    """Without a collector that could say anything."""
    append(node.live, lines_of(200, 300))
    size = len(lines_of(200, 300))

    async with shipping(replace(node.shipper(), pipeline_uid="first")):
        await node.until_sent(size)
