"""Partitions move between collectors with other folders, and each line stands in one of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.collecting import (
    GROUP,
    HOSTS,
    PARTITIONS,
    Pipeline,
    Source,
    collecting,
    config_for,
    pipeline,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.records import epoch_key
from logpipeline_collector import takeover, worker
from logpipeline_collector.files.committed import committed_files
from logpipeline_collector.service import EXIT_BUSY
from logpipeline_collector.snapshots import Snapshot, SnapshotStore
from logpipeline_collector.stream_position import Marks
from logpipeline_collector.stream_reader import Interrupted
from waiting import eventually

NEVER_S = 3600.0


async def test_scaling_while_lines_flow_loses_and_doubles_none(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """One collector, two, three, and one again; no process is restarted, no line stands twice."""
    members = [f"collector-{number}" for number in range(3)]
    folders = {member: tmp_path / member for member in members}
    sources = [Source(host) for host in HOSTS]
    async with pipeline(nats_server) as made, AsyncExitStack() as stack:
        for member in members:
            config = config_for(nats_server, folders[member], member)
            await stack.enter_async_context(collecting(config))
        for count in (1, 2, 3, 1):
            await made.assign(*members[:count])
            await send_for_a_while(made, sources)
        for partition in range(PARTITIONS):
            await made.until_committed(len(sources[partition].batches), partition)

        for source in sources:
            assert lines_in(source, list(folders.values())) == sorted(source.sent.splitlines())
            assert all(is_in_order(source.collected(folder)) for folder in folders.values())


async def test_a_batch_that_comes_again_after_a_hand_over_is_known(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The successor has the sources' positions: from the snapshot, and from headers behind it."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    never = {"snapshot_every_s": 3600.0}
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folders[0], "collector-0", **never)):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await made.assign("collector-1")
            async with collecting(config_for(nats_server, folders[1], "collector-1")):
                await source.send_again(made.js, 0, attempt="resent")
                await source.send(made.js, "two")
                await made.until_committed(3)

        assert source.collected(*folders) == source.sent == b"one\ntwo\n"


@pytest.mark.parametrize("when", ["while it lasts", "before the next try"])
async def test_a_take_over_that_is_called_off_leaves_the_partition_to_others(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its collector lives on, so that nobody else would take what its record names as its own."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    members = ("collector-0", "collector-1")
    never = {"snapshot_every_s": 3600.0}
    catch_up, retry_s, has_begun = takeover.catch_up, worker.RETRY_S, asyncio.Event()

    async def called_off(*args: Any) -> int:
        monkeypatch.setattr(takeover, "catch_up", catch_up)
        has_begun.set()
        if when == "before the next try":
            monkeypatch.setattr(worker, "RETRY_S", NEVER_S)
            raise OutcomeUnknown("no answer")
        await eventually(lambda: not args[-1](), what="it is called off")
        raise Interrupted("called off")

    async with pipeline(nats_server) as made, AsyncExitStack() as stack:
        await made.assign(members[0])
        for member, folder in zip(members, folders, strict=True):
            await stack.enter_async_context(
                collecting(config_for(nats_server, folder, member, **never))
            )
        await source.send(made.js, "one")
        await made.until_committed(1)
        monkeypatch.setattr(takeover, "catch_up", called_off)
        await made.assign(members[1])
        await has_begun.wait()
        monkeypatch.setattr(worker, "RETRY_S", retry_s)
        await made.assign(members[0])
        await source.send(made.js, "two")
        await made.until_committed(2)

    assert source.collected(*folders) == source.sent


async def test_a_partition_that_comes_back_goes_on_in_a_new_file(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """So that files by age are lines in order, whoever wrote them."""
    members = ["collector-0", "collector-1"]
    folders, source = [tmp_path / member for member in members], Source(HOSTS[0])
    async with pipeline(nats_server) as made, AsyncExitStack() as stack:
        for member, folder in zip(members, folders, strict=True):
            await stack.enter_async_context(collecting(config_for(nats_server, folder, member)))
        for number, member in enumerate([*members, *members]):
            await made.assign(member)
            await made.until_owned(0, member)
            await source.send(made.js, f"line {number}")
            await made.until_committed(number + 1)
    files = [file for folder in folders for file in committed_files(folder)]
    files.sort(key=lambda file: file.begun_ns)

    assert b"".join(file.path.read_bytes() for file in files) == source.sent
    assert [file.is_rotated for file in files] == [True, True, False, False]


async def test_without_a_snapshot_the_whole_stream_tells_what_is_known(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A purged snapshot costs time, and doubles no line."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.commit_one(nats_server, folders[0], source)
        await made.js.call("STREAM.PURGE.SNAPSHOTS")
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send_again(made.js, 0, attempt="resent")
            await source.send(made.js, "two")
            await made.until_committed(3)

        assert source.collected(*folders) == source.sent


async def test_a_snapshot_that_cannot_be_understood_is_no_snapshot(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Its checksum is right, and its content is not what this version knows."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.commit_one(nats_server, folders[0], source)
        await point_to_strange_snapshot(made)
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send_again(made.js, 0, attempt="resent")
            await source.send(made.js, "two")
            await made.until_committed(3)

        assert source.collected(*folders) == source.sent


@pytest.mark.parametrize("size", ["\u00b2", "1"])
async def test_a_header_of_the_servers_is_not_taken_from_a_publisher(
    nats_server: EmbeddedServer, tmp_path: Path, size: str
) -> None:
    """A successor, which reads headers alone, takes over, and knows what was written."""
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.commit_one(nats_server, folders[0], source)
        # It dies without a snapshot of what follows.
        config = config_for(nats_server, folders[0], "collector-0", snapshot_every_s=3600.0)
        async with collecting(config) as dying:
            await source.send(made.js, "two", **{"Nats-Msg-Size": size})
            await made.until_committed(2)
            dying.cancel()
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            await source.send_again(made.js, 1, attempt="resent")
            await source.send(made.js, "three")
            await made.until_committed(4)

        assert source.collected(*folders) == source.sent == b"one\ntwo\nthree\n"


async def test_old_snapshots_are_removed(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """Two of them stay, each of a chunk and a manifest, however often one was made."""
    source = Source(HOSTS[0])
    config = config_for(nats_server, tmp_path / "c", snapshot_every_s=0.05)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            for number in range(10):
                await source.send(made.js, f"line {number}")
                await made.until_committed(number + 1)
                await asyncio.sleep(0.05)

        info = await made.js.stream_info("SNAPSHOTS")
    assert info is not None
    assert info["state"]["messages"] == 4
    assert info["state"]["last_seq"] > 8


async def test_a_second_process_of_the_same_member_refuses(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """In the same folder at once, in another one as soon as the first is seen to live."""
    config = config_for(nats_server, tmp_path / "a")
    async with pipeline(nats_server) as made, collecting(config) as first:
        await made.assign("collector-0")
        await Source(HOSTS[0]).send(made.js, "one")
        await made.until_committed(1)

        async with collecting(config) as same_folder:
            assert await same_folder == EXIT_BUSY
        async with collecting(config_for(nats_server, tmp_path / "b")) as other_folder:
            assert await other_folder == EXIT_BUSY
        assert not first.done()


async def point_to_strange_snapshot(made: Pipeline) -> None:
    """Store a snapshot of bytes that no table wrote, and let the epoch record name it."""
    record = await made.epoch()
    assert record is not None
    store = SnapshotStore(
        made.js, stream="SNAPSHOTS", subject=f"_lp-snapshots.{GROUP}.p0", partition=0
    )
    sequence = await store.write(Snapshot(record.position, Marks().encode(), b"of the future"))
    changed = replace(record, snapshot=sequence, snapshot_at=record.position.sequence)
    await made.bucket.put(epoch_key(GROUP, 0), changed.encode())


async def send_for_a_while(made: Pipeline, sources: list[Source]) -> None:
    for number in range(150):
        for source in sources:
            await source.send(made.js, f"{len(source.batches):06}", f"{number} of this step")


def lines_in(source: Source, folders: list[Path]) -> list[bytes]:
    return sorted(line for folder in folders for line in source.collected(folder).splitlines())


def is_in_order(data: bytes) -> bool:
    numbers = [line for line in data.splitlines() if b" " not in line]
    return numbers == sorted(numbers)
