"""A stream or a bucket that goes back is noticed; nothing is skipped, and nothing doubled."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.collecting import (
    BUCKET,
    GROUP,
    HOSTS,
    PARTITIONS,
    CollectorProcess,
    Pipeline,
    Source,
    collecting,
    config_for,
    log_stream,
    pipeline,
)
from components.contents import contents_below
from logpipeline.embedded import EmbeddedServer
from logpipeline.records import epoch_key
from logpipeline.subjects import Subjects
from waiting import eventually


async def test_reused_sequences_are_not_skipped(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The store is put back to an older copy, and filled beyond what was read, before the
    collector looks: what the file still has arrives again, once.
    """
    folder, source = tmp_path / "c", Source(HOSTS[0])
    subject = Subjects("logs", PARTITIONS).of_host(HOSTS[0])
    config = config_for(nats_server, folder)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            await source.send(made.js, "one")
            await made.js.publish(subject, b"a stranger's")
            await made.until_committed(2)
            await copy_store(nats_server, tmp_path / "copy")
            for number in range(8):
                await source.send(made.js, f"lost by the server {number}")
            await made.until_committed(10)
        await put_back(made, nats_server, tmp_path / "copy", stream="LOGS_0")
        # Without them the stream is read again from its start, the stranger's line with it.
        (folder / "state" / GROUP / "p0.marks").unlink()
        for number in range(4, len(source.batches)):
            await source.send_again(made.js, number, attempt="healing")
        for number in range(12):
            await source.send(made.js, f"new {number}")
        async with collecting(config):
            await made.until_committed(16)

        record = await made.epoch()
    assert source.collected(folder) == source.sent
    assert strangers(folder) == [b"a stranger's"]
    assert record is not None
    assert record.rollbacks == 1


async def test_what_a_group_left_out_stays_out_when_the_stream_goes_back(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Read again from its start, for want of marks, it holds a source that nobody here wanted."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    silent = Source(HOSTS[0], path="/var/log/silent.log")
    config = config_for(nats_server, folder, deliver_policy="new")
    async with pipeline(nats_server) as made:
        await silent.send(made.js, "old")
        await made.assign("collector-0")
        async with collecting(config):
            await made.until_owned(0, "collector-0")
            await copy_store(nats_server, tmp_path / "copy")
            await source.send(made.js, "new")
            await made.until_committed(2)
        await put_back(made, nats_server, tmp_path / "copy", stream="LOGS_0")
        (folder / "state" / GROUP / "p0.marks").unlink()
        await source.send_again(made.js, 0, attempt="healing")
        await source.send(made.js, "newer")
        async with collecting(config):
            await made.until_committed(3)

    assert source.collected(folder) == source.sent
    assert silent.collected(folder) == b""


async def test_a_group_leaves_out_nothing_of_a_stream_that_was_made_anew(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Where it began is a sequence of the former stream: a shipper that took it for one of this
    would believe that messages up to it are not wanted.
    """
    folder, source = tmp_path / "c", Source(HOSTS[0])
    config = config_for(nats_server, folder, deliver_policy="new")
    async with pipeline(nats_server) as made:
        for number in range(5):
            await Source(HOSTS[0], path=f"/var/log/old-{number}.log").send(made.js, "old")
        await made.assign("collector-0")
        async with collecting(config):
            await made.until_owned(0, "collector-0")
            before = await made.epoch()
            await made.js.call("STREAM.DELETE.LOGS_0")
            await made.js.call("STREAM.CREATE.LOGS_0", log_stream(0))
            for number in range(3):
                await source.send(made.js, f"new {number}")
            await eventually(lambda: source.written(folder) == source.sent)
            await made.until_committed(3)

            async def is_lowered() -> bool:
                record = await made.epoch()
                return record is not None and record.begun == 0

            await eventually(is_lowered, what="the record says that nothing is left out")

    assert before is not None
    assert before.begun == 5


async def test_a_stream_that_went_back_while_it_is_read_is_read_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The collector runs all the while, and sees the server go and come."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folder)):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await copy_store(nats_server, tmp_path / "copy")
            await source.send(made.js, "two")
            await source.send(made.js, "three")
            await made.until_committed(3)
            await put_back(made, nats_server, tmp_path / "copy", stream="LOGS_0")
            await source.send_again(made.js, 2, attempt="healing")
            for number in range(5):
                await source.send(made.js, f"new {number}")
            await made.until_committed(7)

        record = await made.epoch()
    assert source.collected(folder) == source.sent
    assert record is not None
    assert record.rollbacks == 1


async def test_a_stream_made_anew_is_read_from_its_start(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It has the same name, and sequences that begin at 1 again."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folder)):
            for number in range(5):
                await source.send(made.js, f"old {number}")
            await made.until_committed(5)
            await made.js.call("STREAM.DELETE.LOGS_0")
            await made.js.call("STREAM.CREATE.LOGS_0", log_stream(0))
            for number in range(8):
                await source.send(made.js, f"new {number}")
            await made.until_committed(8)

    assert source.collected(folder) == source.sent


async def test_a_successor_knows_what_came_after_the_stream_was_made_anew(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The last snapshot is from before that, at the very sequence of the last commit: what the new
    stream brought is in the first folder, and is not written again.
    """
    first, second, source = tmp_path / "a", tmp_path / "b", Source(HOSTS[0])
    config = config_for(nats_server, first, snapshot_every_s=600)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            for number in range(3):
                await source.send(made.js, f"old {number}")
            await made.until_committed(3)
        await made.js.call("STREAM.DELETE.LOGS_0")
        await made.js.call("STREAM.CREATE.LOGS_0", log_stream(0))
        async with collecting(config):
            for number in range(3):
                await source.send(made.js, f"new {number}")
            await eventually(lambda: _has_rollback(made), what="the roll-back to be committed")
            await made.until_committed(3)
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, second, "collector-1")):
            await made.until_owned(0, "collector-1")
            for number in range(6):
                await source.send_again(made.js, number, attempt="twice")
            await made.until_committed(9)

    assert source.collected(first) == source.sent
    assert source.collected(second) == b""


async def test_a_successor_knows_the_sources_of_a_stream_that_is_empty_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Its position is 0 then, and yet there are sources to be known."""
    first, second, source = tmp_path / "a", tmp_path / "b", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, first)):
            for number in range(3):
                await source.send(made.js, f"old {number}")
            await made.until_committed(3)
            await made.js.call("STREAM.DELETE.LOGS_0")
            await made.js.call("STREAM.CREATE.LOGS_0", log_stream(0))
            await eventually(lambda: _has_rollback(made), what="the roll-back to be committed")
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, second, "collector-1")):
            await made.until_owned(0, "collector-1")
            for number in range(3):
                await source.send_again(made.js, number, attempt="twice")
            await made.until_committed(3)

    assert source.collected(first) == source.sent
    assert source.collected(second) == b""


async def test_a_successor_knows_what_was_collected_before_the_stream_was_made_anew(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Behind the last snapshot, which is from before that: the owner writes one anew, although
    nothing was read since.
    """
    folders, source = [tmp_path / "a", tmp_path / "b"], Source(HOSTS[0])
    first, second = (
        config_for(nats_server, folder, member, snapshot_every_s=3600.0)
        for folder, member in zip(folders, ("collector-0", "collector-1"), strict=True)
    )
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(first), collecting(second):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await made.assign("collector-1")
            await made.until_owned(0, "collector-1")
            await source.send(made.js, "two")
            await made.until_committed(2)
            await made.js.call("STREAM.DELETE.LOGS_0")
            await made.js.call("STREAM.CREATE.LOGS_0", log_stream(0))

            async def is_noticed() -> bool:
                record = await made.epoch()
                return record is not None and record.rollbacks == 1

            await eventually(is_noticed, what="the collector sees that the stream went back")
            await made.assign("collector-0")
            await made.until_owned(0, "collector-0")
            await source.send_again(made.js, 1, attempt="healing")
            await source.send(made.js, "three")
            await made.until_committed(2)

    assert sorted(source.collected(*folders).split()) == sorted(source.sent.split())


async def test_a_successor_writes_nothing_again_of_a_stream_that_went_back(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The owner dies before its first snapshot, and the server loses its tail: what is left in the
    stream of what the record covers is in the first folder.
    """
    first, second, source = tmp_path / "a", tmp_path / "b", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, first, "collector-0", snapshot_every_s=600.0) as owner:
            for number in range(3):
                await source.send(made.js, f"old {number}")
            await made.until_committed(3)
            await copy_store(nats_server, tmp_path / "copy")
            await source.send(made.js, "lost by the server")
            await made.until_committed(4)
            owner.kill()
        await put_back(made, nats_server, tmp_path / "copy", stream="LOGS_0")
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, second, "collector-1")):
            await eventually(lambda: _has_rollback(made), what="the roll-back to be committed")
            await source.send(made.js, "new")
            await made.until_committed(4)

    assert source.collected(first, second) == source.sent


async def test_a_bucket_that_went_back_is_written_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The folder knows better: nothing is read twice, and the epoch goes on rising."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folder)):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await copy_store(nats_server, tmp_path / "copy")
        async with collecting(config_for(nats_server, folder)):
            for number in range(5):
                await source.send(made.js, f"later {number}")
            await made.until_committed(6)
        await put_back(made, nats_server, tmp_path / "copy", stream=f"KV_{BUCKET}")
        async with collecting(config_for(nats_server, folder)):
            await source.send(made.js, "last")
            await made.until_committed(7)

        record = await made.epoch()
    assert source.collected(folder) == source.sent
    assert record is not None
    assert record.epoch == 3


async def test_a_bucket_that_was_emptied_under_a_running_collector_is_written_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It finds its record gone at the next commit, and takes the partition again."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, folder)):
            await source.send(made.js, "one")
            await made.until_committed(1)
            subject = f"$KV.{BUCKET}.{epoch_key(GROUP, 0)}"
            await made.js.call(f"STREAM.PURGE.KV_{BUCKET}", {"filter": subject})
            await source.send(made.js, "two")
            await made.until_committed(2)

    assert source.collected(folder) == source.sent


async def copy_store(server: EmbeddedServer, copy: Path) -> None:
    """Copy the store as it lies on the disk; each message was synced before its answer."""
    shutil.copytree(server.store, copy)


async def put_back(made: Pipeline, server: EmbeddedServer, copy: Path, *, stream: str) -> None:
    """Put one stream back to its copy, while the server is down."""
    connection = made.js.connection
    await server.stop()
    await eventually(lambda: not connection.is_connected)
    [now] = server.store.rglob(f"streams/{stream}")
    [then] = copy.rglob(f"streams/{stream}")
    shutil.rmtree(now)
    shutil.copytree(then, now)
    await server.start()
    await connection.wait_connected()


def strangers(folder: Path) -> list[bytes]:
    return [
        line
        for path, _, data in contents_below(folder / "logs")
        if path.name == "_lines.log"
        for line in data.splitlines()
    ]


async def _has_rollback(made: Pipeline) -> bool:
    record = await made.epoch()
    return record is not None and record.rollbacks == 1
