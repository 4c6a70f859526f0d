"""What was given is durable, also where nothing more is given for a while."""

from __future__ import annotations

import asyncio
import errno
import os
import tracemalloc
from pathlib import Path

import pytest

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import committer
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.redo import REDO, Record, Write, records_of
from logpipeline_cli.receiving.spool import Spool, SpoolFull, SyncFailed


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


async def test_nothing_is_committed_behind_what_a_stop_gave_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A later group that fits would move the position past entries that are nowhere. What has a
    position is read again, so nothing of it is called dropped.
    """
    monkeypatch.setattr(committer, "GROUP_BYTES_MAX", 1)
    opened = Spool(tmp_path)
    opened.commit({"a.log": b"one\n"}, 1)
    commit = opened.commit

    def full(lines: dict[str, bytes], state: int) -> None:
        if lines["a.log"] == b"a long one\n":
            raise SpoolFull("full")
        commit(lines, state)

    monkeypatch.setattr(opened, "commit", full)
    made, stop = Committer(opened, Metrics("receiver"), waits=True), asyncio.Event()
    given = [made.give({"a.log": b"a long one\n"}, 1, 2), made.give({"a.log": b"x\n"}, 1, 3)]
    stop.set()
    await made.run(stop)
    made.close()
    opened.close()

    assert all(each.cancelled() for each in given)
    with Spool(tmp_path) as again:
        assert again.state == 1
    assert (tmp_path / "a.log").read_bytes() == b"one\n"
    (record,) = (each for each in caplog.records if "lines are" in each.message)
    assert record.message == "lines are read again at the next start"
    assert vars(record)["lines"] == 2


async def test_lines_that_a_stop_drops_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All that wait, where no sender keeps them."""
    opened = Spool(tmp_path)

    def full(*_: object) -> None:
        raise SpoolFull("full")

    monkeypatch.setattr(committer, "GROUP_BYTES_MAX", 1)
    monkeypatch.setattr(opened, "commit", full)
    made, stop = Committer(opened, Metrics("receiver"), waits=True), asyncio.Event()
    for _ in range(3):
        made.give({"a.log": b"x\ny\n"}, 2)
    stop.set()
    await made.run(stop)
    made.close()
    opened.close()

    (record,) = (each for each in caplog.records if "lines are" in each.message)
    assert record.message == "lines are dropped"
    assert vars(record)["lines"] == 6


async def test_room_is_noticed_though_nothing_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a load balancer that follows readiness, no request comes by which it would show."""
    monkeypatch.setattr(committer, "IDLE_S", 0.01)
    stop, loop, sync = asyncio.Event(), asyncio.get_running_loop(), os.fdatasync
    failures = [OSError(errno.ENOSPC, "full")] * 3

    def full(descriptor: int) -> None:
        if failures:
            raise failures.pop()
        sync(descriptor)
        loop.call_soon_threadsafe(stop.set)

    with Spool(tmp_path) as opened, monkeypatch.context() as patched:
        opened.commit({"a.log": b"one\n"}, 1)
        patched.setattr(os, "fdatasync", full)
        made = Committer(opened, Metrics("receiver"), waits=False)
        given = made.give({"a.log": b"refused\n"}, 1)
        async with asyncio.timeout(10):
            await made.run(stop)

        with pytest.raises(SpoolFull, match="the disk is full"):
            await given
        assert made.why_not_ready() is None
        opened.commit({"a.log": b"two\n"}, 2)
    assert (tmp_path / "a.log").read_bytes() == b"one\ntwo\n"


async def test_what_waits_counts_with_what_it_takes(tmp_path: Path) -> None:
    """Short datagrams take many times their bytes: memory would have another bound."""
    with Spool(tmp_path) as opened:
        made, stop = Committer(opened, Metrics("receiver"), waits=True), asyncio.Event()
        count = 500
        tracemalloc.start()
        for number in range(count):
            made.give({f"{number}.log": b"%d\n" % number}, 1)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        waiting = made.metrics.value("waiting_bytes") or 0
        assert taken * 0.8 < waiting < taken * 2
        stop.set()
        await made.run(stop)
        assert made.metrics.value("waiting_bytes") == 0
        assert made.metrics.value("bytes_total") == sum(len(f"{n}\n") for n in range(count))
