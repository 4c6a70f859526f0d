"""`ship` and `collect` as fshipper's users start them: by variables alone; and a server without
JetStream, as in its time.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from components.component import Component
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.server_binary import find_binary
from ports import free_port
from waiting import WITHIN_S, eventually

SUBJECT = "shipper"
PARTITIONS = 3
# By their partitions.
HOSTS = ("localhost", "node-b", "web1.example.net")


@asynccontextmanager
async def core_server(folder: Path) -> AsyncIterator[str]:
    """Run a nats-server without JetStream, and yield its URL."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [find_binary(), "-a", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    url = f"nats://127.0.0.1:{port}"
    try:
        async with connected(url):
            yield url
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Yield a connection of the test's own."""
    connection = Connection(NatsOptions(servers=(url,), name="test"))
    await connection.start(patience_s=WITHIN_S)
    try:
        yield connection
    finally:
        await connection.close()


def producer(folder: Path, url: str, host: str, *, file: Path | None = None) -> Component:
    """The command `ship` that follows *file*, by default ``<folder>/<host>.log``."""
    variables = {
        "SHIPPER_FILE": str(file or folder / f"{host}.log"),
        "SHIPPER_SUBJECT": SUBJECT,
        "SHIPPER_PARTITIONS": str(PARTITIONS),
        "HOSTNAME": host,
        # fshipper's users leave the scheme out.
        "NATS_URL": url.removeprefix("nats://"),
    }
    words = ["ship", "--data", str(folder / "data" / host)]
    return Component(f"ship-{host}", words, folder / f"ship-{host}.out", variables)


def consumer(folder: Path, url: str, *, target: str = "", **variables: str) -> Component:
    """The command `collect` that reads all partitions into ``<folder>/files``."""
    environment = {
        "SHIPPER_SUBJECT": SUBJECT,
        "SHIPPER_READ_PARTITIONS": ",".join(map(str, range(PARTITIONS))),
        "SHIPPER_DIRECTORY": str(folder / "files"),
        "SHIPPER_OUTPUT": "app.log",
        "SHIPPER_STREAM_TARGET": target,
        "NATS_URL": url.removeprefix("nats://"),
        **variables,
    }
    return Component("collect", ["collect"], folder / "collect.out", environment)


def write(folder: Path, host: str, lines: list[str]) -> None:
    """Append *lines* to the file that `producer` follows."""
    with (folder / f"{host}.log").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def collected(folder: Path, host: str) -> list[str]:
    """Return the lines that `consumer` wrote of *host*, oldest file first."""
    files = sorted((folder / "files" / host).glob("app.log-*"))
    return [line for path in files for line in path.read_text().splitlines()]


async def arrived(folder: Path, host: str, lines: list[str]) -> None:
    """Return when `consumer` has written exactly *lines* of *host*."""
    await eventually(
        lambda: len(collected(folder, host)) >= len(lines),
        what=f"{len(lines)} lines of {host}",
    )
    assert collected(folder, host) == lines
