"""Whatever a rotator calls what it moves away, each line is shipped once, under one source."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from components.shipping import (
    HOST,
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    read_once,
    shipping,
    stored,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.jetstream import JetStream
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import HostSources

# The names of log4j2 and logback, of their users, of logrotate with dateformat and extension, of
# lumberjack, and of those who rotate by hand.
NAMES = [
    "app-1.log",
    "app.1.log",
    "app.log.old",
    "app.log-20261122-1795365284",
    "app-20261122-1795365284.log",
    "app-2026-11-22T10-00-00.000.log",
    "app-2026-11-22-1.log",
    "old/app.log-20261122",
    "app.log.1",
]
ROUNDS = 4


def by_rename(live: Path, target: Path) -> None:
    live.rename(target)


def by_copy(live: Path, target: Path) -> None:
    shutil.copyfile(live, target)
    with live.open("r+b") as file:
        file.truncate(0)


def by_rename_and_gzip(live: Path, target: Path) -> None:
    live.rename(target)
    packed = target.with_name(target.name + ".gz")
    packed.write_bytes(gzip.compress(target.read_bytes(), 1))
    target.unlink()


@asynccontextmanager
async def shipping_below(logs: Path, server: EmbeddedServer, js: JetStream) -> AsyncIterator[None]:
    """Ship each log below *logs* into a new stream inside the block."""
    hosts = (HostSources(host=HOST, include=(f"{logs}/**",)),)
    config = config_of(logs.parent, server.url, hosts=hosts, read_out_s=10.0)
    await make_stream(js)
    async with shipping(config):
        yield


@pytest.mark.parametrize("rotate", [by_rename, by_copy, by_rename_and_gzip])
@pytest.mark.parametrize("name", NAMES)
async def test_what_is_moved_away_stays_with_its_source(
    nats_server: EmbeddedServer,
    tmp_path: Path,
    name: str,
    rotate: Callable[[Path, Path], None],
) -> None:
    """A file under a name that nobody knows is not a new log."""
    logs = tmp_path / "logs"
    live, target = logs / "app.log", logs / name
    target.parent.mkdir(exist_ok=True, parents=True)
    async with jetstream(nats_server) as js:
        async with shipping_below(logs, nats_server, js):
            for number in range(ROUNDS):
                append(live, lines_of(10 * number, 10 * number + 10))
                await until_stored(js, live, lines_of(0, 10 * number + 10))
                for old in target.parent.glob(f"{target.name}*"):
                    old.unlink()
                rotate(live, target)
        messages = await stored(js)

    assert {batch_of(message).source for message in messages} == {str(live)}
    assert read_once(messages) == {(HOST, str(live)): lines_of(0, 10 * ROUNDS)}


async def test_what_a_program_writes_on_into_its_removed_log_arrives(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """For much longer than a file that no program has open is waited for."""
    live, number = tmp_path / "logs" / "app.log", 1
    live.parent.mkdir()
    async with jetstream(nats_server) as js, shipping_below(live.parent, nats_server, js):
        with live.open("ab", buffering=0) as log:
            log.write(lines_of(0, 1))
            await until_stored(js, live, lines_of(0, 1))
            live.unlink()
            removed_s = time.monotonic()
            while time.monotonic() - removed_s < 2 * ReadLimits().grace_s + 1:
                log.write(lines_of(number, number + 1))
                number += 1
                await until_stored(js, live, lines_of(0, number))

    assert number > 1


async def test_members_that_are_appended_to_a_packed_log_arrive(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Each when it comes, though the file was read to its end before."""
    logs = tmp_path / "logs"
    logs.mkdir()
    async with jetstream(nats_server) as js, shipping_below(logs, nats_server, js):
        for number in range(3):
            append(logs / "access.log.gz", gzip.compress(lines_of(number, number + 1)))
            await until_stored(js, logs / "access.log", lines_of(0, number + 1))
