"""A collector that comes back with an empty volume: what the streams still hold is read again, and
what is gone is named.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from components.collecting import (
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
from waiting import eventually


async def collect(
    made: Pipeline, server: EmbeddedServer, folder: Path, member: str, source: Source, *lines: str
) -> None:
    """Collect *lines*, one message each, by *member* in *folder*."""
    await made.assign(member)
    async with collecting(config_for(server, folder, member)):
        for line in lines:
            await source.send(made.js, line)
        await made.until_committed(len(source.batches))


async def gone_folders(made: Pipeline) -> list[dict[str, Any]]:
    """Return what collectors say of folders that are gone, in partition 0."""
    answers = await ask(made.js.connection, "_lp.logs")
    rows = [row for answer in answers["collector"] for row in answer["partitions"]]
    return [gone for row in rows if row["partition"] == 0 for gone in row.get("gone_folders", ())]


async def test_an_empty_volume_is_filled_from_the_stream(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """All that it had is collected again, once, also what a shipper sends a second time."""
    lost, new, source = tmp_path / "lost", tmp_path / "new", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await collect(made, nats_server, lost, "collector-0", source, "one", "two", "three")
        async with collecting(config_for(nats_server, new, "collector-0")):
            await source.send_again(made.js, 1, attempt="healing")
            await source.send(made.js, "four")
            await made.until_committed(5)
            [gone] = await gone_folders(made)

    assert source.collected(new) == source.sent
    assert (gone["member"], gone["after"], gone["end"]) == ("collector-0", 0, 3)
    assert gone["again_from"] == 1


async def test_a_folder_that_is_put_back_from_a_copy_reads_what_came_since(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """At another place, file by file: all lines stand in it once."""
    lost, backup, new = (tmp_path / name for name in ("lost", "backup", "new"))
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await collect(made, nats_server, lost, "collector-0", source, "one", "two")
        shutil.copytree(lost, backup)
        await collect(made, nats_server, lost, "collector-0", source, "three", "four")
        shutil.rmtree(lost)
        shutil.copytree(backup, new)
        await collect(made, nats_server, new, "collector-0", source, "five")

    assert source.collected(new) == source.sent


async def test_what_the_stream_no_longer_holds_is_named(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The rest comes, and what is gone is a range of messages."""
    lost, new, source = tmp_path / "lost", tmp_path / "new", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await collect(made, nats_server, lost, "collector-0", source, "one", "two", "three")
        await made.js.call("STREAM.PURGE.LOGS_0", {"seq": 3})
        async with collecting(config_for(nats_server, new, "collector-0")):
            await source.send(made.js, "four")
            await made.until_committed(4)
            [gone] = await gone_folders(made)

    assert source.collected(new) == b"three\nfour\n"
    assert (gone["after"], gone["again_from"], gone["end"]) == (0, 3, 3)


async def test_a_collector_that_shall_continue_reads_nothing_again_and_says_so(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The range that is gone is all that the volume had."""
    lost, new, source = tmp_path / "lost", tmp_path / "new", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await collect(made, nats_server, lost, "collector-0", source, "one", "two")
        going_on = config_for(nats_server, new, "collector-0", on_empty_volume="Continue")
        async with collecting(going_on):
            await source.send(made.js, "three")
            await made.until_committed(3)
            [gone] = await gone_folders(made)

    assert source.collected(new) == b"three\n"
    assert (gone["after"], gone["again_from"], gone["end"]) == (0, 0, 2)


@pytest.mark.parametrize("place", ["collector.after-take-over:1", "collector.before-swap:1"])
async def test_only_what_the_lost_volume_had_is_read_again(
    nats_server: EmbeddedServer, tmp_path: Path, place: str
) -> None:
    """What another collector wrote before stands in its folder; a crash in the midst of it
    changes nothing.
    """
    other, lost, new = (tmp_path / name for name in ("other", "lost", "new"))
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await collect(made, nats_server, other, "collector-1", source, "one", "two")
        await collect(made, nats_server, lost, "collector-0", source, "three", "four")
        with CollectorProcess(nats_server, new, "collector-0", place) as dying:
            await eventually(lambda: dying.exit_code is not None)
        async with collecting(config_for(nats_server, new, "collector-0")):
            await source.send_again(made.js, 0, attempt="healing")
            await source.send(made.js, "five")
            await made.until_committed(6)

    assert source.collected(other, new) == source.sent
