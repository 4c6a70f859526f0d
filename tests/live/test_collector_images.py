"""Two collectors with images of one volume: what their folders say of themselves is the same, and
only one of them works at a time.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

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
from logpipeline.statefile import read_state, write_state
from logpipeline_collector.epochs import HeldEpoch
from logpipeline_collector.folder import IDENTITY, KIND, VERSION
from logpipeline_collector.membership import Membership
from logpipeline_collector.service import EXIT_BUSY
from waiting import eventually

# Longer than a test waits for anything.
LONG_S = 120.0
WAITS = "waiting for collector-0 to release it"


def image_of(folder: Path, name: str) -> Path:
    """Return a copy of *folder* as an image of its volume makes it: it has the same inodes."""
    image = folder.with_name(name)
    shutil.copytree(folder, image, symlinks=True)
    state = image / "state" / GROUP
    identity = read_state(state / IDENTITY, KIND, VERSION)
    assert identity is not None
    write_state(state / IDENTITY, KIND, VERSION, identity | {"inode": state.stat().st_ino})
    return image


async def epoch_of(made: Pipeline) -> tuple[int, str]:
    """Return the epoch of partition 0, and its owner."""
    record = await made.epoch()
    assert record is not None
    return record.epoch, record.owner


async def until_taken(made: Pipeline, epoch: int) -> None:
    """Return once partition 0 was taken for *epoch*."""

    async def is_taken() -> bool:
        return await epoch_of(made) == (epoch, "collector-0")

    await eventually(is_taken)


async def test_an_image_of_the_folder_is_refused_while_its_original_works(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The original keeps its partitions, and each line is written once."""
    source = Source(HOSTS[0])
    async with (
        pipeline(nats_server) as made,
        collecting(config_for(nats_server, tmp_path / "a")) as first,
    ):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        before = await epoch_of(made)
        image = image_of(tmp_path / "a", "b")
        async with collecting(config_for(nats_server, image)) as second:
            await source.send(made.js, "two")
            assert await second == EXIT_BUSY
        await source.send(made.js, "three")
        await made.until_committed(3)
        assert await epoch_of(made) == before
        assert not first.done()

    assert source.collected(tmp_path / "a") == source.sent
    assert source.collected(image) == b"one\n"


async def test_an_original_that_was_frozen_ends_once_its_image_works(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It was silent for long enough. What came after it in its place is no predecessor of it."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, tmp_path / "a", "collector-0") as original:
            await source.send(made.js, "one")
            await made.until_committed(1)
            epoch, _ = await epoch_of(made)
            original.suspend()
            image = image_of(tmp_path / "a", "b")
            with CollectorProcess(nats_server, image, "collector-0"):
                await source.send(made.js, "two")
                await made.until_committed(2)
                original.resume()
                await eventually(lambda: original.exit_code is not None)
                await source.send(made.js, "three")
                await made.until_committed(3)
                assert await epoch_of(made) == (epoch + 1, "collector-0")
                assert original.exit_code == EXIT_BUSY

    assert source.collected(image) == source.sent
    assert source.collected(tmp_path / "a") == b"one\n"


async def test_an_original_takes_back_what_it_was_about_to_commit(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder has the line already when it hears that another one has its name."""
    heard, taken = asyncio.Event(), asyncio.Event()
    hear, advance = Membership.run, HeldEpoch.advance

    async def heard_of_it(membership: Membership) -> None:
        try:
            await hear(membership)
        finally:
            heard.set()

    async def advance_late(held: HeldEpoch, *args: Any, **changes: Any) -> None:
        await taken.wait()
        await advance(held, *args, **changes)

    monkeypatch.setattr(Membership, "run", heard_of_it)
    source = Source(HOSTS[0])
    async with (
        pipeline(nats_server) as made,
        collecting(config_for(nats_server, tmp_path / "a")) as original,
    ):
        await made.assign("collector-0")
        await source.send(made.js, "one")
        await made.until_committed(1)
        epoch, _ = await epoch_of(made)
        image = image_of(tmp_path / "a", "b")
        monkeypatch.setattr(HeldEpoch, "advance", advance_late)
        await source.send(made.js, "two")
        await eventually(lambda: source.collected(tmp_path / "a") == source.sent)
        with CollectorProcess(nats_server, image, "collector-0", takeover_after_s=0.0):
            await eventually(heard.is_set)
            await until_taken(made, epoch + 1)
            taken.set()
            assert await original == EXIT_BUSY
            await made.until_committed(2)

    assert source.collected(image) == source.sent
    assert source.collected(tmp_path / "a") == b"one\n"


async def test_another_member_with_an_image_waits_for_the_owner(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It knows the owner's process from the image, and that says nothing about it."""
    caplog.set_level(logging.INFO)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, tmp_path / "a", "collector-0") as original:
            await Source(HOSTS[0]).send(made.js, "one")
            await made.until_committed(1)
            original.suspend()
            before = await made.epoch()
            image = image_of(tmp_path / "a", "b")
            await made.assign("collector-1")
            config = config_for(nats_server, image, "collector-1", takeover_after_s=LONG_S)
            async with collecting(config):
                await eventually(lambda: WAITS in reasons(caplog), what=WAITS)
            assert await made.epoch() == before


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why partitions wait."""
    waits = [record for record in caplog.records if record.message == "partition waits"]
    return [str(record.__dict__["reason"]) for record in waits]


async def test_a_collector_that_was_killed_goes_on_at_once(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Its lock in the same place proves that it is gone."""
    source = Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        for number in range(2):
            with CollectorProcess(
                nats_server, tmp_path / "a", "collector-0", takeover_after_s=LONG_S
            ):
                await source.send(made.js, f"line {number}")
                await made.until_committed(number + 1)

    assert source.collected(tmp_path / "a") == source.sent
