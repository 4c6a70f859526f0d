"""A syslog receiver that has no room, or has more senders than it may have, in this process."""

from __future__ import annotations

import asyncio
import errno
import functools
import socket
from pathlib import Path

import pytest

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import service
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.service import ReceiverConfig
from logpipeline_cli.receiving.spool import Spool, SpoolFull, SyncFailed
from logpipeline_cli.receiving.syslog_server import SyslogConfig, SyslogServer
from ports import free_port
from waiting import eventually

MEMORY_BYTES = 200_000
# More than memory and the buffers of both ends hold, so that the receiver stops reading.
MESSAGES = 10_000
MESSAGE = b"<14>Nov 26 10:00:00 h app: " + b"x" * 2000 + b"\n"


class Running:
    """A receiver whose spool's `commit` is *commit*, and that holds `MEMORY_BYTES`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, commit: object) -> None:
        small = functools.partial(Committer, waiting_bytes_max=MEMORY_BYTES)
        monkeypatch.setattr(service, "Committer", small)
        monkeypatch.setattr(Spool, "commit", commit)
        self.port = free_port()
        self.stop = asyncio.Event()
        self.sources: list[SyslogServer] = []
        config = ReceiverConfig(
            folder=folder, http=("127.0.0.1", 0), waits=True, rotate_bytes=1 << 26, keep=3
        )
        self.task = asyncio.create_task(service.run(config, self._make, self.stop))

    def _make(self, metrics: Metrics) -> SyslogServer:
        self.metrics = metrics
        self.sources.append(SyslogServer(SyslogConfig(tcp=("127.0.0.1", self.port)), metrics))
        return self.sources[0]

    async def ready(self) -> None:
        """Wait until it listens."""
        await eventually(
            lambda: bool(self.sources) and self.sources[0].why_not_ready() is None,
            what="it listens",
        )

    async def filled(self) -> asyncio.StreamWriter:
        """Return a connection by which more was sent than the receiver can hold."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(MESSAGE * MESSAGES)
        await eventually(lambda: self.waiting_bytes >= MEMORY_BYTES, what="its memory is full")
        return writer

    @property
    def waiting_bytes(self) -> float:
        """What is not durable."""
        return self.metrics.value("waiting_bytes") or 0


def dropped_lines(caplog: pytest.LogCaptureFixture) -> int:
    """Return how many lines the log says are dropped."""
    (record,) = (each for each in caplog.records if each.message == "lines are dropped")
    return int(vars(record)["lines"])


async def test_a_stop_ends_a_receiver_that_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the disk is full and senders wait; how many lines are dropped is logged."""

    def full(*_: object) -> None:
        raise SpoolFull("full")

    running = Running(tmp_path, monkeypatch, full)
    await running.ready()
    writer = await running.filled()
    running.stop.set()
    await running.task
    writer.transport.abort()

    assert dropped_lines(caplog) == running.metrics.value("messages_total", transport="tcp")


async def test_a_disk_that_fails_ends_a_receiver_that_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would neither receive nor be started again."""
    fails = asyncio.Event()
    loop = asyncio.get_running_loop()

    def broken(*_: object) -> None:
        asyncio.run_coroutine_threadsafe(fails.wait(), loop).result()
        raise SyncFailed(errno.EIO, "sync failed")

    running = Running(tmp_path, monkeypatch, broken)
    await running.ready()
    writer = await running.filled()
    fails.set()
    with pytest.raises(ExceptionGroup) as raised:
        await running.task
    writer.transport.abort()

    assert raised.group_contains(SyncFailed)
    assert dropped_lines(caplog) == running.metrics.value("messages_total", transport="tcp")


async def test_a_flood_of_datagrams_leaves_time_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the next one is always there, connections and the page of metrics get their turns."""
    loop, had_turn = asyncio.get_running_loop(), asyncio.Event()

    class Starved(Exception):
        """Nothing else ran for many turns."""

    turns = 0

    async def at_once(*_: object) -> tuple[bytes, tuple[str, int]]:
        nonlocal turns
        turns += 1
        if turns == 2:
            loop.call_soon(had_turn.set)
        if turns > 100 and not had_turn.is_set():
            raise Starved
        return b"<14>h app: text", ("127.0.0.1", 9)

    monkeypatch.setattr(loop, "sock_recvfrom", at_once)
    metrics = Metrics("receiver")
    with Spool(tmp_path) as spool, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as empty:
        empty.setblocking(False)
        made = Committer(spool, metrics, waits=True)
        receiving = asyncio.create_task(SyslogServer(SyslogConfig(), metrics)._receive(made, empty))
        await asyncio.wait(
            (receiving, asyncio.create_task(had_turn.wait())), return_when=asyncio.FIRST_COMPLETED
        )
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving


async def test_a_connection_of_a_machine_that_is_gone_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel asks whether it is there: else such connections would fill --connections."""
    running = Running(tmp_path, monkeypatch, Spool.commit)
    await running.ready()
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    connections = running.sources[0]._connections
    await eventually(lambda: any(connections.values()), what="it is connected")
    (theirs,) = connections.values()
    assert theirs is not None
    accepted = theirs.get_extra_info("socket")

    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    running.stop.set()
    await running.task
    writer.transport.abort()
