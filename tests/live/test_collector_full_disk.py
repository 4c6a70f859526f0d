"""A disk that another program filled keeps no partition from a collector that has room."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from components.collecting import HOSTS, Source, collecting, config_for, pipeline
from logpipeline.embedded import EmbeddedServer
from logpipeline_collector.files import commit
from logpipeline_collector.sink import SinkFull
from waiting import eventually


class Disk:
    """The disk of the collector with *folder*, which has no room for commits while it *is_full*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_full = False
        self.refused = 0
        self._write = commit.write

    def write(self, made: Any, marks: Any, sources: Any, output: Any, state: Any) -> None:
        """Commit, or find no room."""
        if self.is_full and output.root.is_relative_to(self.folder):
            self.refused += 1
            raise SinkFull(errno.ENOSPC, "no room", str(self.folder))
        self._write(made, marks, sources, output, state)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of the folder `a`."""
    made = Disk(tmp_path / "a")
    monkeypatch.setattr(commit, "write", made.write)
    return made


async def test_a_partition_moves_away_from_a_full_disk(
    nats_server: EmbeddedServer, tmp_path: Path, disk: Disk
) -> None:
    """What is not committed there is read again by the next owner, and stands in its files."""
    source = Source(HOSTS[0])
    folders = tmp_path / "a", tmp_path / "b"
    async with (
        pipeline(nats_server) as made,
        collecting(config_for(nats_server, folders[0])),
        collecting(config_for(nats_server, folders[1], "collector-1")),
    ):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        disk.is_full = True
        await source.send(made.js, "two")
        await eventually(lambda: disk.refused > 0, what="there is no room")
        await made.assign("collector-1")
        await made.until_owned(0, "collector-1")
        await source.send(made.js, "three")
        await made.until_committed(3)

    assert source.collected(folders[0]) == b"one\n"
    assert source.collected(*folders) == source.sent


async def test_a_take_over_onto_a_full_disk_can_be_called_off(
    nats_server: EmbeddedServer, tmp_path: Path, disk: Disk
) -> None:
    """The partition goes back to the one with room, though the epoch was taken."""
    source = Source(HOSTS[0])
    disk.is_full = True
    async with (
        pipeline(nats_server) as made,
        collecting(config_for(nats_server, tmp_path / "b", "collector-1")),
        collecting(config_for(nats_server, tmp_path / "a")),
    ):
        await made.assign("collector-1")
        await source.send(made.js, "one")
        await made.until_committed(1)
        await made.assign("collector-0")
        await eventually(lambda: disk.refused > 0, what="there is no room")
        await made.assign("collector-1")
        await source.send(made.js, "two")
        await made.until_committed(2)

    assert source.collected(tmp_path / "b") == source.sent
