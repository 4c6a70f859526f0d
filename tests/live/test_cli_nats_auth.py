"""What `nats-auth` writes is what a nats-server of one's own takes, and what each part needs."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from components.managed_server import connected, is_healthy, refused
from components.pipeline_up import run_command
from logpipeline.authority import user_of_host
from logpipeline.credentials import nats_options
from logpipeline.nats.connection import ConnectFailed, NatsOptions
from logpipeline.server_binary import find_binary
from logpipeline.spec import LogPipeline, load
from logpipeline.subjects import Subjects
from ports import free_port
from waiting import eventually

# The second one's name is too long for an inbox, and the first is written as "web_d1".
HOSTS = ("web.1", "a-rack-in-the-second-row.of-the-hall.example.net", "web_1")


class Own(NamedTuple):
    """A server of one's own, with the users that were written to *folder*."""

    pipeline: LogPipeline
    folder: Path
    url: str

    def options(self, user: str) -> NatsOptions:
        return nats_options(self.pipeline, servers=(self.url,), login=self.folder / user)


def resource(folder: Path, **spec: Any) -> Path:
    """Write a resource, and return its file."""
    file = folder / "pipeline.yaml"
    head = {"apiVersion": "logpipeline.dev/v1alpha1", "kind": "LogPipeline"}
    whole = {**head, "metadata": {"name": "own"}, "spec": {"partitions": 2, **spec}}
    file.write_text(yaml.safe_dump(whole))
    return file


async def write(file: Path, out: Path, *hosts: str) -> subprocess.CompletedProcess[str]:
    """Run the command for *hosts*."""
    named = [word for host in hosts for word in ("--host", host)]
    return await run_command("nats-auth", "-f", str(file), "--out", str(out), *named)


@asynccontextmanager
async def own_server(folder: Path) -> AsyncIterator[Own]:
    """Run a server with what the command wrote, as the documentation says."""
    file, out = resource(folder), folder / "users"
    done = await write(file, out, *HOSTS)
    assert done.returncode == 0, done.stderr
    port, monitor = free_port(), free_port()
    (out / "server.conf").write_text(
        f'listen: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{monitor}"\n'
        f'jetstream {{ store_dir: "{folder}/store", sync_interval: always }}\n'
        'include "accounts.conf"\n'
    )
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([find_binary(), "-c", out / "server.conf"], stderr=log)
    try:
        await eventually(lambda: is_healthy(monitor), what="the server takes the accounts")
        yield Own(load(file), out, f"nats://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


async def test_each_host_speaks_for_itself(tmp_path: Path) -> None:
    """Its own lines are stored, and those that it has for another are not."""
    async with own_server(tmp_path) as own, connected(own.options("operator")) as js:
        subjects = Subjects(own.pipeline.names.subject, own.pipeline.spec.partitions)
        for partition in range(2):
            config = {"name": f"LOGS_{partition}", "subjects": subjects.of_stream(partition)}
            await js.call(f"STREAM.CREATE.LOGS_{partition}", {**config, "storage": "file"})
        for host in HOSTS:
            other = HOSTS[HOSTS.index(host) - 1]
            async with connected(own.options(user_of_host(host))) as node:
                stored = await node.connection.request(subjects.of_host(host), b"mine")
                assert b'"seq"' in stored.data
                await node.connection.publish(subjects.of_host(other), b"forged")
                await refused(node.connection, subjects.of_host(other), "another host's line")
        counts = [(await js.stream_info(f"LOGS_{p}") or {})["state"]["messages"] for p in (0, 1)]

    assert sum(counts) == len(HOSTS)


async def test_what_is_there_is_kept_and_private(tmp_path: Path) -> None:
    """Another host changes no password, and only their owner may read them."""
    file, out = resource(tmp_path), tmp_path / "users"
    first = await write(file, out, "web1")
    before = (out / "shipper-web1" / "password").read_text()
    second = await write(file, out, "web1", "db1")

    assert (first.returncode, second.returncode) == (0, 0)
    assert (out / "shipper-web1" / "password").read_text() == before
    assert "_INBOX_shipper-db1" in second.stdout
    assert before not in first.stdout + second.stdout
    for path in out.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


async def test_who_has_no_password_stays_out(tmp_path: Path) -> None:
    """A user's name alone opens nothing."""
    async with own_server(tmp_path) as own:
        (own.folder / "operator" / "password").write_text("guessed")
        with pytest.raises(ConnectFailed, match="credentials"):
            async with asyncio.timeout(20), connected(own.options("operator")):
                pass


async def test_a_host_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    """A name with a wildcard would speak for others."""
    done = await write(resource(tmp_path), tmp_path / "users", "*")

    assert done.returncode == 64
    assert "--host" in done.stderr
    assert not (tmp_path / "users").exists()
