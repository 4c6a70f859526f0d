"""A shipper that is killed at any step goes on where it was: nothing is stored twice or missing."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import warm
from components.shipping import (
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    shipping,
    start_process,
    stored,
    until_noted,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from waiting import eventually


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(
    "failpoint",
    [
        "shipper.before-send",
        "shipper.after-send",
        "shipper.after-ack",
        "shipper.before-save",
        "shipper.after-save",
    ],
)
async def test_a_kill_between_any_two_steps_stores_nothing_twice(
    nats_server: EmbeddedServer, tmp_path: Path, failpoint: str, count: int
) -> None:
    """The batch that was under way is repeated under the same id, though its file has grown."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js:
        await make_stream(js)
        # A batch smaller than the next one could be: repeated by chance it would not be the same.
        append(path, lines_of(0, 10))
        process = start_process(tmp_path, nats_server.url, failpoint=f"{failpoint}:{count}")
        written = 10
        while process.poll() is None and written < 20_000:
            append(path, lines_of(written, written + 10))
            written += 10
            await _a_moment(process)
        assert process.returncode == -signal.SIGKILL
        append(path, lines_of(written, written + 100))
        async with shipping(config_of(tmp_path, nats_server.url)):
            await until_stored(js, path, lines_of(0, written + 100))

        batches = [batch_of(message) for message in await stored(js)]
        assert [b.start for b in batches[1:]] == [b.end for b in batches[:-1]]


async def test_a_batch_in_flight_while_positions_are_saved_is_still_known_after_a_kill(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The save takes over from the notes what has no acknowledgement yet."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js:
        await make_stream(js)
        append(path, lines_of(0, 10))
        process = start_process(tmp_path, nats_server.url)
        await until_stored(js, path, lines_of(0, 10))
        nats_server.suspend()
        append(path, lines_of(10, 20))
        config = config_of(tmp_path, nats_server.url)
        await until_noted(config, path, len(lines_of(0, 20)))
        append(path.with_name("other.log"), b"one\n")
        await eventually(lambda: b"other.log" in (config.data / "positions").read_bytes())
        process.kill()
        process.wait()
        nats_server.resume()
        append(path, lines_of(20, 500))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 500))

        batches = [batch_of(message) for message in await stored(js)]
        batches = [batch for batch in batches if batch.source == str(path)]
        assert [b.start for b in batches[1:]] == [b.end for b in batches[:-1]]


async def test_positions_from_before_cost_duplicates_that_are_marked(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """State that was put back is state that says too little: readers cut what comes again."""
    path = tmp_path / "logs" / "app.log"
    config = config_of(tmp_path, nats_server.url)
    async with jetstream(nats_server) as js:
        await make_stream(js)
        append(path, lines_of(0, 100))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 100))
        old = (tmp_path / "data" / "positions").read_bytes()
        append(path, lines_of(100, 500))
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 500))
        (tmp_path / "data" / "positions").write_bytes(old)
        (tmp_path / "data" / "stopped").unlink()
        append(path, lines_of(500, 600))

        async with shipping(config):
            await until_stored(js, path, lines_of(0, 600))


async def test_broken_positions_lose_nothing(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """The broken file is kept aside, and everything comes again, where no collector says what it
    has.
    """
    path = tmp_path / "logs" / "app.log"
    config = config_of(tmp_path, nats_server.url)
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config):
            append(path, lines_of(0, 100))
            await until_stored(js, path, lines_of(0, 100))
        (tmp_path / "data" / "positions").write_bytes(b"positions 1 00000000 9\n{}")
        append(path, lines_of(100, 200))

        # Told to begin at the ends of files, it would skip what was written meanwhile.
        async with shipping(replace(config, read_from="end")):
            sent = lines_of(0, 100) + lines_of(0, 200)
            await until_stored(js, path, sent)
        assert (tmp_path / "data" / "positions.broken-0").exists()


async def test_a_second_shipper_of_the_same_folder_refuses_to_start(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two would overwrite each other's positions; the first one goes on."""
    config = config_of(tmp_path, nats_server.url)
    async with shipping(config) as first:
        await eventually((tmp_path / "data" / "positions").exists)
        async with shipping(config) as second:
            assert await second.task == 1

        assert not first.task.done()
    reasons = [getattr(record, "reason", "") for record in caplog.records]
    assert any("another shipper (process" in str(reason) for reason in reasons)


async def _a_moment(process: warm.AnyProcess) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, 0.02)
