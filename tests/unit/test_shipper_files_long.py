"""A large file that has to be compared or unpacked from end to end holds up nothing else."""

from __future__ import annotations

import asyncio
import gzip
import threading
from pathlib import Path

import pytest

from components.log_chain import Folder, append, joined, pack
from components.shared_parts import Server, shared_by
from logpipeline.nats.jetstream import PubAck
from logpipeline_shipper.checkpoint import SourceRecord
from logpipeline_shipper.config import BatchOptions
from logpipeline_shipper.files import generations
from logpipeline_shipper.files.listing import Listing
from logpipeline_shipper.files.reader import PackedReader
from logpipeline_shipper.message import Message, MessageBuilder
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.source import Source
from waiting import eventually

LINES = b"".join(b"%d %d\n" % (number, number**9) for number in range(20_000))


class Held(Server):
    """Acknowledges messages only while *is_there* is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there = asyncio.Event()
        self.waiting = 0

    async def send(self, message: Message, *, resend: bool) -> PubAck:
        """Acknowledge *message* once the server is there."""
        self.waiting += 1
        await self.is_there.wait()
        return await super().send(message, resend=resend)


def source_of(folder: Folder, server: Server) -> tuple[Source, Shared]:
    shared = shared_by(server, folder.path, lambda: folder.now_s)
    shared.options = BatchOptions(linger_s=0.0)
    builder = MessageBuilder(
        folder.chain.id, subject="logs", installation="i", cluster="", is_compressing=False
    )
    record = SourceRecord(saved=None)
    source = Source(folder.chain.id, folder.chain, builder, shared, record, is_in_doubt=False)
    return source, shared


def begun(path: Path, server: Server) -> tuple[Folder, Source, Shared]:
    """Return a log of `LINES` in *path*, and its source, which has begun to send to *server*."""
    folder = Folder(path)
    append(folder.live, LINES)
    folder.look()
    source, shared = source_of(folder, server)
    source.wake()
    return folder, source, shared


def rotated_and_packed(folder: Folder) -> Listing:
    """Return the listing after the log was packed, and a new one begun."""
    pack(folder.live.with_name("app.log.1.gz"), folder.live.read_bytes())
    folder.live.unlink()
    append(folder.live, b"new\n")
    (listing,) = folder.discovery.scan()
    return listing


@pytest.fixture
def unpacking_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the threads that unpack the first half of a log from now on; 1,000 bytes
    count as many.
    """
    threads: list[int] = []
    step = PackedReader._step

    def noted(self: PackedReader) -> bool:
        if self._buffer_offset + len(self._buffer) < len(LINES) // 2:
            threads.append(threading.get_ident())
        return step(self)

    monkeypatch.setattr(PackedReader, "_step", noted)
    monkeypatch.setattr(generations, "LONG_BYTES", 1000)
    return threads


async def test_a_packed_log_is_recognised_beside_the_event_loop(
    tmp_path: Path, unpacking_threads: list[int]
) -> None:
    """Probes, pings and other sources wait for nothing, however large the file is."""
    folder, source, shared = begun(tmp_path, server := Server())
    await source.finish()

    listing = rotated_and_packed(folder)
    unpacking_threads.clear()  # discovery looks at the first bytes
    source.list(listing)
    await source.finish()
    shared.threads.shutdown()

    assert b"".join(server.payloads) == LINES + b"new\n"
    assert unpacking_threads
    assert threading.get_ident() not in unpacking_threads


async def test_a_packed_log_is_recognised_while_the_server_is_away(
    tmp_path: Path, unpacking_threads: list[int]
) -> None:
    """For hours, maybe: the files of a listing are known and open before they are removed. And the
    acknowledgement that comes at last finds its generation.
    """
    folder, source, shared = begun(tmp_path, server := Held())
    await eventually(lambda: server.waiting)

    listing = rotated_and_packed(folder)
    unpacking_threads.clear()
    source.list(listing)
    listed = {file.identity for file in listing.files}
    assert listed <= set(source.identities())

    def is_recognised() -> bool:
        # While a thread uses the chain, a file may be known there and not open yet.
        return not source._is_in_thread and set(folder.chain.identities()) == listed

    await eventually(is_recognised)
    folder.live.unlink()
    server.is_there.set()
    await source.finish()
    shared.threads.shutdown()

    assert b"".join(server.payloads) == LINES + b"new\n"
    assert threading.get_ident() not in unpacking_threads


async def test_an_acknowledgement_waits_while_files_are_recognised(
    tmp_path: Path, unpacking_threads: list[int]
) -> None:
    """A thread may be using the chain, to which it belongs."""
    folder, source, shared = begun(tmp_path, server := Held())
    await eventually(lambda: server.waiting)

    async with shared.comparing:
        source.list(rotated_and_packed(folder))
        server.is_there.set()
        await eventually(lambda: server.payloads)
        for _ in range(20):
            await asyncio.sleep(0)
        assert source.acked_bytes == 0
    await source.finish()
    shared.threads.shutdown()

    assert source.acked_bytes == len(LINES + b"new\n")


async def test_the_sources_take_turns_with_what_takes_long(
    tmp_path: Path, unpacking_threads: list[int]
) -> None:
    """One at a time: a thread is left for all others."""
    folder, source, shared = begun(tmp_path, server := Server())
    await source.finish()

    listing = rotated_and_packed(folder)
    unpacking_threads.clear()
    async with shared.comparing:
        source.list(listing)
        await shared.budget.take(0)
        assert source.is_running
        assert not unpacking_threads
    await source.finish()
    shared.threads.shutdown()

    assert unpacking_threads
    assert b"".join(server.payloads) == LINES + b"new\n"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_packed_log_is_unpacked_once_to_be_recognised_and_once_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    """However many other generations are remembered, which begin otherwise."""
    folder = Folder(tmp_path)
    for number in range(5):
        append(folder.live, b"run %d\n" % number + LINES[: 40_000 * (number + 1)])
        folder.drain()
        folder.live.unlink()
        folder.drain()
        folder.now_s += 60
        folder.drain()
    append(folder.live, b"the last run\n" + LINES)
    folder.drain()
    assert len(folder.chain.saved()["past"]) == 5
    if is_restarted:
        folder.restart()
    passes: list[None] = []
    step = PackedReader._step
    content = folder.live.read_bytes() + b"and more\n"

    def counted(self: PackedReader) -> bool:
        before = self._buffer_offset + len(self._buffer)
        is_more = step(self)
        middle = len(content) // 2
        passes.extend([None] * (before < middle <= self._buffer_offset + len(self._buffer)))
        return is_more

    monkeypatch.setattr(PackedReader, "_step", counted)
    folder.live.with_name("app.log.1.gz").write_bytes(gzip.compress(content))
    folder.live.unlink()

    assert joined(folder.drain()) == b"and more\n"
    assert len(passes) == 2
