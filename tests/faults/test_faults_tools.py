"""The tools that hurt: a fault that does not happen would let every test pass."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from faults.proxy import Proxy
from faults.small_disk import small_disk

DISK_BYTES = 1024 * 1024
SILENCE_S = 0.3


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    """The port of a server that answers every line with itself."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_cut_is_silent_and_ends_with_the_connection(echo_port: int) -> None:
    """While it is cut nothing comes and nothing is closed; healed, the torn connection ends and a
    new one works.
    """
    with Proxy(echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"
        proxy.cut()
        writer.write(b"cut\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                await reader.readline()
        proxy.heal()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()

        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"after\n")
        assert await reader.readline() == b"after\n"
        writer.close()


async def test_answers_alone_can_be_cut() -> None:
    """What the client says still arrives."""
    heard, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        heard.set()
        writer.write(b"answer\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    with Proxy(server.sockets[0].getsockname()[1]) as proxy:
        proxy.cut_answers()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"question\n")
        async with asyncio.timeout(5):
            await heard.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                await reader.readline()
        writer.close()
    async with asyncio.timeout(5):
        await ended.wait()
    server.close()


def test_a_small_disk_is_full_to_the_last_byte(tmp_path: Path) -> None:
    """Nothing can be written to it, and everything again once it is freed."""
    with small_disk(tmp_path / "disk", size_bytes=DISK_BYTES) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space") as failure:
            (disk.path / "file").write_bytes(b"x")
        assert failure.value.errno == errno.ENOSPC
        disk.free()
        (disk.path / "file").write_bytes(bytes(DISK_BYTES // 2))
