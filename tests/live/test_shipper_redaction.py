"""What a pipeline is told to mask leaves no machine, and each line still arrives once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from components.contents import contents_below
from components.pipeline_up import PipelineUp
from logpipeline_cli.target import connected, find_target
from waiting import eventually

CARD = "4111 1111 1111 1111"
SECRET = "hunter2-and-more"
WORD = "ann@mail.example.net"
RULES = {"presets": ["card", "secret"], "expressions": ["session=([0-9a-f]+)"]}


def line(number: int) -> str:
    """A line with something to mask in most places."""
    texts = (f"paid with {CARD}", f"password={SECRET} ok", "nothing", "session=0123abcd end", WORD)
    return f"{number} {texts[number % len(texts)]}"


def masked(lines: Iterable[str]) -> list[str]:
    """The same lines as `RULES` leave them."""
    found = []
    for each in lines:
        for text in (CARD, SECRET, "0123abcd"):
            each = each.replace(text, "*" * len(text))
        found.append(each)
    return found


def files_with(folder: Path, text: str) -> list[Path]:
    """The files below *folder* that hold *text*."""
    return [path for path, _, data in contents_below(folder) if text.encode() in data]


async def test_what_is_masked_leaves_no_trace(tmp_path: Path) -> None:
    """Neither in the server's store, nor in a collector's file, nor in what the parts keep; and an
    audit compares the lines as they are sent.
    """
    batch = {"compression": "none"}
    async with PipelineUp(tmp_path, redaction=RULES, batch=batch) as up:
        lines = [line(number) for number in range(200)]
        up.append(lines)
        await up.arrived(masked(lines))

        async def is_the_same() -> bool:
            done = await up.run("audit", "-o", "json")
            result = json.loads(done.stdout)
            return done.returncode == 0 and result["comparedBytes"] == result["bytes"] > 0

        await eventually(is_the_same, what="all is compared, and the same")
        for text in (CARD, SECRET, "0123abcd"):
            assert files_with(up.layout.data, text) == []
        assert files_with(up.layout.data, WORD)


@pytest.mark.long
async def test_kills_rotations_and_other_rules_send_nothing_twice(tmp_path: Path) -> None:
    """A file is known by its own bytes, whatever of them was sent. Lines that came before the rules
    changed stay as they are.
    """
    lines: list[str] = []

    def write(up: PipelineUp) -> None:
        more = [line(number) for number in range(len(lines), len(lines) + 50)]
        up.append(more)
        lines.extend(more)

    async with PipelineUp(tmp_path, redaction=RULES) as up:
        live = up.logs / "app.log"
        write(up)
        await up.arrived(masked(lines))
        write(up)
        await up.kill("shipper-web")
        write(up)
        live.rename(up.logs / "app.log.2")
        write(up)
        await up.arrived(masked(lines))
        shutil.copy2(live, up.logs / "app.log.1")
        os.truncate(live, 0)
        write(up)
        await up.arrived(masked(lines))
        before = masked(lines)
        up.write(redaction={"presets": ["email"]})
        await eventually(lambda: "applied" in up.full_log(), what="the new rules")
        await up.kill("shipper-web")
        await up.running()
        write(up)
        after = [each.replace(WORD, "*" * len(WORD)) for each in lines[len(before) :]]
        await up.arrived(before + after)


async def test_what_the_server_lost_is_sent_again_masked(tmp_path: Path) -> None:
    """From the file, by the same rules, so that it fits to what came before and after."""
    async with PipelineUp(tmp_path, redaction=RULES) as up:
        lines = [line(number) for number in range(60)]
        up.append(lines[:20])
        await up.arrived(masked(lines[:20]))
        up.freeze("collector-0")
        try:
            target = find_target(file=None, data=str(up.layout.data), nats=None)
            async with connected(target, "test") as js:
                names = [target.pipeline.names.stream(number) for number in range(2)]

                async def ends() -> list[int]:
                    infos = [await js.stream_info(name) for name in names]
                    return [int(info["state"]["last_seq"]) for info in infos if info]

                before = await ends()
                up.append(lines[20:40])

                async def is_stored() -> bool:
                    return await ends() != before

                await eventually(is_stored, what="the lines are stored")
                await asyncio.gather(*(js.call(f"STREAM.PURGE.{name}") for name in names))
        finally:
            up.thaw("collector-0")
        up.append(lines[40:])
        await eventually(lambda: len(up.collected()) >= 60, within_s=60, what="what was lost")

        assert sorted(up.collected()) == sorted(masked(lines))
        assert (await up.run("status", "--check")).returncode == 0
