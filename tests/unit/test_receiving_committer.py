"""What was given is durable, also where nothing more is given for a while."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import committer
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.spool import REDO, Record, Spool, SyncFailed, Write, records_of


async def test_a_sync_that_fails_in_a_quiet_moment_ends_the_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports it once. A second try would succeed without the bytes, and empty the redo
    log, which alone has them.
    """
    monkeypatch.setattr(committer, "IDLE_S", 0.01)
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)
    stop, loop, sync = asyncio.Event(), asyncio.get_running_loop(), os.fsync
    failures = [OSError(errno.EIO, "broken")]

    def once(descriptor: int) -> None:
        if failures:
            raise failures.pop()
        loop.call_soon_threadsafe(stop.set)
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", once)
        with pytest.raises(SyncFailed, match="sync failed"):
            await Committer(opened, Metrics("receiver"), waits=True).run(stop)
    opened.close()

    records = list(records_of((tmp_path / REDO).read_bytes()))
    assert records[-1].writes == (Write("a.log", 0, b"one\n"),)


async def test_a_full_disk_in_a_quiet_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are synced once there is room."""
    monkeypatch.setattr(committer, "IDLE_S", 0.01)
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)
    stop, loop, rename = asyncio.Event(), asyncio.get_running_loop(), os.rename
    failures = [OSError(errno.ENOSPC, "full")]

    def once(source: Path, target: Path) -> None:
        if failures:
            raise failures.pop()
        rename(source, target)
        loop.call_soon_threadsafe(stop.set)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", once)
        await Committer(opened, Metrics("receiver"), waits=True).run(stop)
    opened.close()

    (record,) = records_of((tmp_path / REDO).read_bytes())
    assert record == Record((), 1)
    assert (tmp_path / "a.log").read_bytes() == b"one\n"
