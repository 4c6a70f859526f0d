"""A Python program beside `logpipeline up` reads its streams without being given a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import logpipeline
from components.pipeline_up import PipelineUp
from logpipeline.layout import Layout, NoPipeline
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.ports import free_port
from logpipeline.spec import load
from waiting import WITHIN_S

LINES = ["one", "two"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NATS_URL", raising=False)


async def read(**where: Any) -> list[str]:
    """Return the lines of one reader as soon as all are there."""
    found: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        async for batch in logpipeline.consume("billing", **where):
            found += [line.text.decode() for line in batch.lines]
            if len(found) >= len(LINES):
                break
    return found


async def test_a_reader_finds_the_running_pipeline(tmp_path: Path) -> None:
    """By nothing, by the resource, and by the folder where it runs."""
    up = PipelineUp(tmp_path, partitions=1)
    up.layout = Layout(tmp_path / "home/logpipeline/default.test")
    async with up:
        up.append(LINES)
        await up.arrived(LINES)

        for where in ({}, {"pipeline": up.file}, {"data": up.layout.data}):
            assert await read(**where) == LINES


async def test_a_reader_without_a_running_pipeline_is_told_what_to_give(tmp_path: Path) -> None:
    """Neither without a resource nor with one that names no server."""
    up = PipelineUp(tmp_path)
    with pytest.raises(NoPipeline, match="logpipeline up"):
        await read()
    with pytest.raises(NoPipeline, match="nats=URL"):
        await read(pipeline=up.file)


async def test_a_fixed_port_lets_other_programs_in(tmp_path: Path) -> None:
    """It serves the user whose files it names."""
    port = free_port()
    async with PipelineUp(tmp_path, partitions=1, local={"nats": {"port": port}}) as up:
        stream = load(up.file).names.stream(0)
        login = up.layout.login("operator")
        options = NatsOptions(
            servers=(f"nats://127.0.0.1:{port}",),
            user_file=login / "user",
            password_file=login / "password",
            inbox_prefix="_INBOX_operator",
        )
        connection = Connection(options)
        await connection.start(patience_s=WITHIN_S)
        try:
            assert await JetStream(connection).stream_info(stream) is not None
        finally:
            await connection.close()
