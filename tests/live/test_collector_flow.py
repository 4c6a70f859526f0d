"""What was published arrives in files, once and in order, whatever ends in between."""

from __future__ import annotations

from pathlib import Path

from components.collecting import HOSTS, PARTITIONS, Source, collecting, config_for, pipeline
from components.contents import contents_below
from logpipeline.embedded import EmbeddedServer
from logpipeline.subjects import Subjects
from waiting import eventually


async def test_lines_become_files_once_and_in_order(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Of two hosts in two partitions, each line stands in its host's file, as it was sent."""
    sources = [Source(host) for host in HOSTS]
    async with pipeline(nats_server) as made, collecting(config_for(nats_server, tmp_path / "c")):
        await made.assign("collector-0")
        for number in range(20):
            for source in sources:
                await source.send(made.js, f"line {number}", "", "and more")

        await made.until_committed(20, partition=0)
        await made.until_committed(20, partition=1)
        assert [source.collected(tmp_path / "c") for source in sources] == [s.sent for s in sources]


async def test_a_restarted_collector_goes_on_where_it_stood(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What came while it was away is there once, and nothing before it again."""
    source = Source(HOSTS[0])
    config = config_for(nats_server, tmp_path / "c")
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            await source.send(made.js, "one")
            await eventually(lambda: source.collected(tmp_path / "c") == source.sent)
        await source.send(made.js, "two")
        async with collecting(config):
            await eventually(lambda: source.collected(tmp_path / "c") == source.sent)

        record = await made.epoch()
    assert record is not None
    assert (record.epoch, record.released) == (2, True)


async def test_lines_of_a_stranger_are_collected_once(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Without our headers a message is a line, without its newline; equal lines are two lines."""
    subject = Subjects("logs", PARTITIONS).of_host(HOSTS[0])
    config = config_for(nats_server, tmp_path / "c")
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config):
            for line in (b"same", b"same", b"two\nlines"):
                await made.js.publish(subject, line)
            await made.until_committed(3)
        async with collecting(config):
            await made.js.publish(subject, b"last")
            await made.until_committed(4)

        assert lines_of(tmp_path) == [b"same", b"same", b"two", b"lines", b"last"]


def lines_of(folder: Path) -> list[bytes]:
    return [
        line for each in contents_below(folder / "c" / "logs") for line in each.data.splitlines()
    ]
