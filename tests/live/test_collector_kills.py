"""A collector that dies between two steps, or sleeps too long, costs no line and doubles none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from components.collecting import HOSTS, CollectorProcess, Pipeline, Source, pipeline
from logpipeline.embedded import EmbeddedServer
from waiting import WITHIN_S, eventually

LINES_AT_ONCE = 500
FAILPOINTS = (
    "collector.after-take-over",
    "collector.after-write",
    "collector.after-fsync",
    "collector.after-state",
    "collector.before-swap",
    "collector.after-swap",
    "collector.after-snapshot",
)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_kill_between_two_steps_loses_and_doubles_nothing(
    nats_server: EmbeddedServer, tmp_path: Path, failpoint: str, count: int
) -> None:
    """The next process in the folder goes on exactly where the files stand."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folder, "collector-0", f"{failpoint}:{count}") as dying:
            await write_until_dead(made, source, dying)
        with CollectorProcess(nats_server, folder, "collector-0"):
            await source.send(made.js, "after")
            await made.until_committed(len(source.batches))

        assert source.collected(folder) == source.sent


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_successor_with_another_folder_goes_on_after_a_kill(
    nats_server: EmbeddedServer, tmp_path: Path, failpoint: str
) -> None:
    """The two folders together hold each line once; what came too late is taken back."""
    folders, source = (tmp_path / "a", tmp_path / "b"), Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folders[0], "collector-0", f"{failpoint}:2") as dying:
            await write_until_dead(made, source, dying)
        await made.assign("collector-1")
        with CollectorProcess(nats_server, folders[1], "collector-1"):
            await source.send(made.js, "after")
            await made.until_committed(len(source.batches))
            with CollectorProcess(nats_server, folders[0], "collector-0"):
                await eventually(lambda: source.collected(*folders) == source.sent)


async def test_a_killed_collector_in_its_own_folder_does_not_wait(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The lock of the folder proves that the one before it is gone: no silence is waited for."""
    folder, source = tmp_path / "c", Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folder, "collector-0", takeover_after_s=3600.0) as first:
            await source.send(made.js, "one")
            await made.until_committed(1)
            first.kill()
        with CollectorProcess(nats_server, folder, "collector-0", takeover_after_s=3600.0):
            await source.send(made.js, "two")
            await made.until_committed(2)

    assert source.collected(folder) == source.sent


@pytest.mark.parametrize("failpoint", ["collector.after-snapshot", "collector.after-release"])
async def test_a_kill_while_giving_up_a_partition_loses_and_doubles_nothing(
    nats_server: EmbeddedServer, tmp_path: Path, failpoint: str
) -> None:
    """Half of the hand-over is done; the successor does the rest, by itself."""
    folders, source = (tmp_path / "a", tmp_path / "b"), Source(HOSTS[0])
    rarely = {"snapshot_every_s": 3600.0}
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with (
            CollectorProcess(nats_server, folders[0], "collector-0", failpoint, **rarely) as dying,
            CollectorProcess(nats_server, folders[1], "collector-1"),
        ):
            await source.send(made.js, "one")
            await made.until_committed(1)
            await made.assign("collector-1")
            await eventually(lambda: dying.exit_code is not None)
            await source.send_again(made.js, 0, attempt="resent")
            await source.send(made.js, "two")
            await made.until_committed(3)

    assert source.collected(*folders) == source.sent


async def test_a_collector_that_slept_past_its_successor_is_fenced(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What it had written, and not committed, is its successor's, and stands once."""
    folders, source = (tmp_path / "a", tmp_path / "b"), Source(HOSTS[0])
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        with (
            CollectorProcess(
                nats_server, folders[0], "collector-0", commit_interval_s=3600.0
            ) as sleeper,
            CollectorProcess(nats_server, folders[1], "collector-1"),
        ):
            for number in range(50):
                await source.send(made.js, f"before {number}")
            await eventually(lambda: source.written(folders[0]) == source.sent)
            sleeper.suspend()
            await made.assign("collector-1")
            for number in range(50):
                await source.send(made.js, f"while {number}")
            await made.until_committed(100)
            sleeper.resume()
            await source.send(made.js, "after")
            await made.until_committed(101)

            await eventually(lambda: source.collected(*folders) == source.sent)
            assert sleeper.exit_code is None
            record = await made.epoch()
            assert record is not None
            assert (record.owner, record.epoch) == ("collector-1", 2)


async def write_until_dead(made: Pipeline, source: Source, dying: CollectorProcess) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            while dying.exit_code is None:
                await source.send(made.js, f"line {len(source.batches)}")
                if len(source.batches) > LINES_AT_ONCE:
                    # A pace, not a wait: some places are reached only while lines flow.
                    await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError("the failpoint was never reached") from None
