"""Snapshots and state bucket that vanish: what can be known is known from elsewhere, and what
cannot is said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.collecting import (
    BUCKET,
    HOSTS,
    CollectorProcess,
    Pipeline,
    Source,
    collecting,
    config_for,
    pipeline,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline_cli.target import ask
from logpipeline_collector import takeover
from logpipeline_collector.recovery import BUCKET_RESTORED, SOURCES_UNKNOWN
from waiting import eventually


async def partition_0(made: Pipeline) -> dict[str, Any]:
    """Return what the owner of partition 0 says of it."""
    answers = await ask(made.js.connection, "_lp.logs")
    rows: list[dict[str, Any]] = [
        row for answer in answers["collector"] for row in answer["partitions"]
    ]
    [row] = [row for row in rows if row["partition"] == 0 and "epoch" in row]
    return row


async def until_snapshot(made: Pipeline, sequence: int) -> None:
    """Return when the record points to a snapshot of *sequence* that is there."""

    async def is_there() -> bool:
        record = await made.epoch()
        if record is None or record.snapshot_at != sequence:
            return False
        return await made.js.message("SNAPSHOTS", record.snapshot) is not None

    await eventually(is_there, what=f"a snapshot at {sequence}")


async def lose_bucket(made: Pipeline) -> None:
    """Remove all that the state bucket holds, as when it is deleted and made anew."""
    await made.js.call(f"STREAM.PURGE.KV_{BUCKET}")


async def test_snapshots_that_vanish_are_written_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """So a successor knows all sources, though nothing was read since, and messages are gone."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folders[0], "collector-0", snapshot_every_s=0.1):
            await source.send(made.js, "one")
            await source.send(made.js, "two")
            await made.until_committed(2)
            await until_snapshot(made, 2)
            await made.js.call("STREAM.PURGE.SNAPSHOTS")
            await until_snapshot(made, 2)
        await made.js.call("STREAM.PURGE.LOGS_0")
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send_again(made.js, 0, attempt="healing")
            await source.send(made.js, "three")
            await made.until_committed(4)

    assert source.collected(*folders) == source.sent


async def test_a_successor_that_cannot_know_the_sources_asks_for_nothing_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The owner is dead, its snapshots are gone, and so are the messages: what was stored up to
    the position was collected all the same, for shippers too, also after a restart.
    """
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    config = config_for(nats_server, folders[1], "collector-1")
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folders[0], "collector-0"):
            for line in ("one", "two", "three"):
                await source.send(made.js, line)
            await made.until_committed(3)
        await made.js.call("STREAM.PURGE.SNAPSHOTS")
        await made.js.call("STREAM.PURGE.LOGS_0", {"seq": 3})
        await made.assign("collector-1")
        async with collecting(config):
            await source.send_again(made.js, 2, attempt="healing")
            await source.send(made.js, "four")
            await made.until_committed(5)
            first = await partition_0(made)
        async with collecting(config):
            await source.send(made.js, "five")
            await made.until_committed(6)
            second = await partition_0(made)
        record = await made.epoch()

    assert source.collected(*folders) == source.sent
    assert first["recovery_warning"] == SOURCES_UNKNOWN
    assert (first["missing_bytes"], second["missing_bytes"]) == (0, 0)
    assert record is not None
    assert record.begun == 3


async def test_a_successor_that_cannot_know_the_sources_takes_what_was_never_read(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Messages that were purged before anybody read them are not taken for left out: their bytes
    are missing until they are sent again, also after a restart, of sources that came since.
    """
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    late = Source(HOSTS[0], path="/var/log/late.log", offset=100)
    config = config_for(nats_server, folders[1], "collector-1")
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folders[0], "collector-0"):
            for line in ("one", "two"):
                await source.send(made.js, line)
            await made.until_committed(2)
        for line in ("three", "four"):
            await source.send(made.js, line)
        await made.js.call("STREAM.PURGE.SNAPSHOTS")
        await made.js.call("STREAM.PURGE.LOGS_0")
        await made.assign("collector-1")
        async with collecting(config):
            await source.send(made.js, "five")
            await made.until_committed(5)
            gone = await partition_0(made)
            for number in (2, 3):
                await source.send_again(made.js, number, attempt="healing")
            await made.until_committed(7)
        async with collecting(config):
            await late.send(made.js, "late")
            await made.until_committed(8)
            restarted = await partition_0(made)

    lines = source.collected(*folders).decode().split()
    assert sorted(lines) == sorted(source.sent.decode().split())
    assert gone["missed_messages"] == restarted["missed_messages"] == 2
    assert gone["missing_bytes"] == source.batches[-1][0].start
    assert restarted["missing_bytes"] == source.batches[1][0].end + 100


async def test_a_bucket_that_is_lost_while_its_owner_is_dead_is_written_from_the_snapshot(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Another collector, with a folder that knows nothing, goes on where the snapshot was."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folders[0], "collector-0"):
            await source.send(made.js, "one")
            await source.send(made.js, "two")
            await made.until_committed(2)
            await until_snapshot(made, 2)
        await lose_bucket(made)
        made.generation = 0
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send_again(made.js, 0, attempt="healing")
            await source.send(made.js, "three")
            await made.until_committed(4)
            row = await partition_0(made)

    assert source.collected(*folders) == source.sent
    assert row["recovery_warning"] == BUCKET_RESTORED


async def test_a_bucket_that_is_lost_while_nothing_is_read_is_written_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The owner looks for its record also where there is nothing to commit."""
    folder, source = tmp_path / "a", Source(HOSTS[0])
    config = config_for(nats_server, folder, snapshot_every_s=0.1)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await until_snapshot(made, 1)
            await lose_bucket(made)
            await made.assign("collector-0")
            await made.until_committed(1)
            await made.until_owned(1, "collector-0")
            await source.send(made.js, "two")
            await made.until_committed(2)

    assert source.collected(folder) == source.sent


async def test_a_partition_is_taken_without_a_stream_of_snapshots(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Where the bucket has no record either, there is nothing to wait for."""
    folder, source = tmp_path / "a", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.js.call("STREAM.DELETE.SNAPSHOTS")
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folder)):
            await source.send(made.js, "one")
            await made.until_committed(1)

    assert source.collected(folder) == source.sent


async def test_an_older_folder_reads_nothing_again_when_the_bucket_is_lost(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What the dead owner collected after it stands in that one's folder."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.commit_one(nats_server, folders[0], source)
        await made.assign("collector-1")
        with CollectorProcess(nats_server, folders[1], "collector-1"):
            await source.send(made.js, "two")
            await made.until_committed(2)
            await until_snapshot(made, 2)
        await lose_bucket(made)
        made.generation = 0
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folders[0], "collector-0")):
            await source.send(made.js, "three")
            await made.until_committed(3)

    lines = source.collected(*folders).splitlines()
    assert sorted(lines) == sorted(source.sent.splitlines())


async def test_an_assignment_that_went_back_leaves_no_partition_without_an_owner(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of an idle partition keeps the higher number. What stands in the bucket for long
    counts in spite of it.
    """
    monkeypatch.setattr(takeover, "ASSIGNMENT_STANDS_S", 0.5)
    source = Source(HOSTS[0])
    config = config_for(nats_server, tmp_path / "a", "collector-0")
    async with pipeline(nats_server) as made:
        made.generation = 16
        await made.assign("collector-0")
        async with collecting(config):
            await source.send(made.js, "one")
            await made.until_committed(1)
        made.generation = 0
        await made.assign("collector-0")
        async with collecting(config):
            await source.send(made.js, "two")
            await made.until_committed(2)
        record = await made.epoch()

    assert source.collected(tmp_path / "a") == source.sent
    assert record is not None
    assert record.assignment == 1
