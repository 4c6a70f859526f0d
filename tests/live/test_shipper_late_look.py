"""A shipper that comes to look at its folders late, on a busy machine, takes no file for gone.

That it is late is made by holding the look back: a machine that is so busy cannot be had for sure.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components import balanced
from components.balanced import STREAM, a_node
from components.collecting import log_stream
from components.shipping import append, lines_of, shipping
from logpipeline.embedded import EmbeddedServer
from logpipeline_shipper import source_manager
from logpipeline_shipper.checkpoint import peek
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.generations import may_have_unread
from logpipeline_shipper.source_manager import SourceManager
from waiting import eventually

TICKS = 3


def knows_unsent(data: Path) -> bool:
    """Whether the shipper of *data* has saved that a file has bytes which it did not send."""
    try:
        known = peek(data)
    except FileNotFoundError:
        return False
    return any(may_have_unread(record.saved, record.births) for record in known.values())


async def test_a_first_look_that_comes_late_misses_no_file(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last process knew of, and had not sent, is neither named as lost nor sent twice."""
    balanced.hurry(monkeypatch)
    monkeypatch.setattr(source_manager, "SCANS_UNTIL_GONE", 0)
    may_look, ticks, look, tick = asyncio.Event(), [0], Discovery.run, SourceManager.tick

    async def look_late(*arguments: Any) -> None:
        await may_look.wait()
        await look(*arguments)

    def count(self: SourceManager) -> None:
        ticks[0] += 1
        tick(self)

    async with a_node(nats_server, tmp_path) as node:
        append(node.live, lines_of(0, 300))
        await node.made.js.call(f"STREAM.DELETE.{STREAM}")
        async with shipping(replace(node.shipper(), drain_s=0.1)):
            await eventually(lambda: knows_unsent(tmp_path / "data"), what="positions say so")
        await node.made.js.call(f"STREAM.CREATE.{STREAM}", log_stream(0))
        monkeypatch.setattr(Discovery, "run", look_late)
        monkeypatch.setattr(SourceManager, "tick", count)
        async with node.collector(), shipping(node.shipper()):
            await eventually(lambda: ticks[0] >= TICKS, what="the shipper goes on meanwhile")
            may_look.set()
            await node.until_collected(lines_of(0, 300))
            await node.until_settled()

            assert await node.losses() == []
