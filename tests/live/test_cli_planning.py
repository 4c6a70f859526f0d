"""What `plan` and `apply` promise to people and scripts, against a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.pipeline_up import run_command
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.ports import free_port
from logpipeline.server_binary import find_binary
from waiting import WITHIN_S


def resource(folder: Path, **spec: Any) -> list[str]:
    """Write a resource, and return the words that name it."""
    document = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "test"},
        "spec": {"partitions": 2, "subject": "logs", **spec},
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document))
    return ["-f", str(path), "--data", str(folder / "data")]


async def test_a_plan_exits_2_until_it_is_applied(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """A script sees by the exit code alone whether there is something to change."""
    words = [*resource(tmp_path), "--nats", nats_server.url]

    before = await run_command("plan", *words)
    applied = await run_command("apply", *words)
    after = await run_command("plan", *words, "-o", "json")

    assert (before.returncode, applied.returncode, after.returncode) == (2, 0, 0), applied.stderr
    assert "test_0" in before.stdout
    assert json.loads(after.stdout)["empty"] is True


async def test_status_of_what_was_never_applied_says_what_to_run(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """The error names the command, not the server's configuration, which is right."""
    status = await run_command("status", *resource(tmp_path), "--nats", nats_server.url)

    assert status.returncode == 1
    assert status.stderr.endswith("does not exist on this server; run `logpipeline apply`\n")


async def test_apply_deletes_no_data_unless_it_is_told_to(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """A lower limit, which would delete stored messages, is held back and said so."""
    wide = [*resource(tmp_path, stream={"maxAge": "24h"}), "--nats", nats_server.url]
    assert (await run_command("apply", *wide)).returncode == 0
    await _publish(nats_server.url)
    narrow = [*resource(tmp_path, stream={"maxAge": "1h"}), "--nats", nats_server.url]

    held = await run_command("apply", *narrow)
    allowed = await run_command("apply", *narrow, "--allow-data-loss")

    assert held.returncode == 1
    assert "--allow-data-loss" in held.stdout
    assert allowed.returncode == 0, allowed.stdout
    assert (await run_command("plan", *narrow)).returncode == 0


async def _publish(url: str) -> None:
    connection = Connection(NatsOptions(servers=(url,), name="test"))
    await connection.start(patience_s=WITHIN_S)
    try:
        await JetStream(connection).publish("logs.p0.web1", b"a line")
    finally:
        await connection.close()


async def test_a_server_that_wants_credentials_says_so(tmp_path: Path) -> None:
    """Every command that needs the server ends with what the server asks for."""
    options = ServerOptions(user="ann", password="secret")
    async with EmbeddedServer(tmp_path / "nats", options) as server:
        words = [*resource(tmp_path), "--nats", server.url]
        done = await run_command("plan", *words)

    assert done.returncode == 1
    assert "asks for credentials" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_a_pipeline_that_was_never_applied_is_told_so(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Following lines of streams that do not exist says how they are made."""
    done = await run_command("tail", *resource(tmp_path), "--nats", nats_server.url)

    assert done.returncode == 1
    assert "logpipeline apply" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_server_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    """A command gives up on a wrong address within seconds, and names it."""
    done = await run_command("status", *resource(tmp_path), "--nats", "nats://127.0.0.1:1")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "is it running" in done.stderr


async def test_a_name_that_nobody_knows_is_told_so(tmp_path: Path) -> None:
    """It is another mistake than a server that does not run."""
    words = [*resource(tmp_path), "--nats", "nats://no-such-host.invalid:4222"]
    done = await run_command("status", *words)

    assert done.returncode == 1
    assert "no-such-host.invalid" in done.stderr
    assert "cannot be resolved" in done.stderr


@pytest.mark.parametrize("command", ["plan", "apply", "up", "status"])
async def test_a_server_without_jetstream_is_one_line(tmp_path: Path, command: str) -> None:
    """Which says what to do."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(find_binary()), "-a", "127.0.0.1", "-p", str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        words = [*resource(tmp_path), "--nats", f"nats://127.0.0.1:{port}"]
        done = await run_command(command, *words)
    finally:
        process.terminate()
        await process.wait()

    assert done.returncode == 1
    assert "JetStream" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("logpipeline: ")
