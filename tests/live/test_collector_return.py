"""A folder that was away is put in order when it comes back, however long that took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from components.collecting import (
    GROUP,
    HOSTS,
    CollectorProcess,
    Pipeline,
    Source,
    collecting,
    config_for,
    pipeline,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.ownership import StoredRecord
from logpipeline.records import EPOCH_HISTORY_MAX, epoch_key
from logpipeline_cli.committed import Reading
from logpipeline_collector import worker
from logpipeline_collector.epochs import EpochRecords, StoredEpoch
from logpipeline_collector.recovery import BUCKET_LOST
from waiting import eventually

LOOKS_WHILE_IT_LAGS = 3


async def test_a_folder_that_was_away_for_many_epochs_takes_its_late_commit_back(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Its owner died between the commit of the folder and that of the bucket, and more owners came
    than the record has places for epochs.
    """
    first, second = tmp_path / "a", tmp_path / "b"
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await leave_late_commit(made, nats_server, first, source)
        assert b"two\n" in source.collected(first)
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, second, "collector-1")):
            await made.until_committed(2)
        for _ in range(EPOCH_HISTORY_MAX + 1):
            await succeed_once(made)
        async with collecting(config_for(nats_server, first, "collector-0")):
            await eventually(lambda: source.collected(first, second) == source.sent)


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_late_commit_is_taken_back_though_a_replica_of_the_bucket_lags(
    nats_server: EmbeddedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_older: bool,
) -> None:
    """A collector that is given nothing looks once at what its folder holds. A server that lags is
    faked: it shows no record for a while, or one from before the folder's.
    """
    folder, source = tmp_path / "a", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await leave_late_commit(made, nats_server, folder, source)
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, tmp_path / "b", "collector-1")):
            await made.until_committed(2)
            read, looks = EpochRecords.read, 0

            async def read_late(records: EpochRecords, partition: int) -> StoredEpoch:
                nonlocal looks
                looks += partition == 0
                now = await read(records, partition)
                if looks > LOOKS_WHILE_IT_LAGS or now.record is None:
                    return now
                return StoredRecord(replace(now.record, epoch=0) if is_older else None, 0)

            monkeypatch.setattr(EpochRecords, "read", read_late)
            async with collecting(config_for(nats_server, folder, "collector-0")):
                await eventually(lambda: source.collected(folder) == b"one\n")

    assert looks > LOOKS_WHILE_IT_LAGS


async def test_a_folder_keeps_its_last_commit_where_the_bucket_is_lost(
    nats_server: EmbeddedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After half a minute the collector no longer waits for a replica. It says what it found."""
    monkeypatch.setattr(worker, "LAG_S_MAX", 0.5)
    folder, source = tmp_path / "a", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await leave_late_commit(made, nats_server, folder, source)
        await made.bucket.erase(epoch_key(GROUP, 0))
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folder, "collector-0")):
            await eventually(lambda: BUCKET_LOST in caplog.messages)

    assert source.collected(folder) == b"one\ntwo\n"


async def test_files_of_a_collector_that_stays_away_show_no_line_twice(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Its last commit is in its folder still; who reads the files of both learns from the
    successor's folder that it counts for nothing.
    """
    folders = [tmp_path / "a", tmp_path / "b"]
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await leave_late_commit(made, nats_server, folders[0], source)
        alone = cat(folders)
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send(made.js, "three")
            await made.until_committed(3)
            await eventually(lambda: cat(folders) == source.sent)

    assert source.collected(folders[0]) == alone == b"one\ntwo\n"
    assert cat(folders) == source.sent


def cat(folders: list[Path]) -> bytes:
    """Return what `logpipeline files cat` prints."""
    return b"".join(chunk for file in Reading(folders, HOSTS[0], None).files() for chunk in file)


async def leave_late_commit(
    made: Pipeline, server: EmbeddedServer, folder: Path, source: Source
) -> None:
    """Let collector-0 collect "one", and die when the folder alone knows of "two"."""
    await made.assign("collector-0")
    with CollectorProcess(server, folder, "collector-0", "collector.before-swap:2") as dying:
        await source.send(made.js, "one")
        await made.until_committed(1)
        await source.send(made.js, "two")
        await eventually(lambda: dying.exit_code is not None)


async def succeed_once(made: Pipeline) -> None:
    """Take partition 0 over, as the process of one more folder would."""
    records = EpochRecords(made.bucket, group=GROUP, member="collector-1", incarnation="third-1")
    seen = await records.read(0)
    assert seen.record is not None
    await records.take_over(
        0,
        seen,
        epoch=seen.record.epoch + 1,
        assignment=made.generation,
        reached=seen.record.reached,
    )
