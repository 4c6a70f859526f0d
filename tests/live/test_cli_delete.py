"""`logpipeline delete` removes a pipeline, and nothing of others."""

from __future__ import annotations

from pathlib import Path

from components.pipeline_up import PipelineUp, run_command
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.observe import stream_names
from waiting import WITHIN_S


async def streams(server: EmbeddedServer) -> list[str]:
    """The streams of *server*."""
    connection = Connection(NatsOptions(servers=(server.url,)))
    await connection.start(patience_s=WITHIN_S)
    try:
        return await stream_names(JetStream(connection))
    finally:
        await connection.close()


async def test_a_pipeline_is_deleted_from_a_server_and_others_stay(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Not while it runs, and its files only if asked to."""
    words = ("--nats", nats_server.url)
    up = PipelineUp(tmp_path / "one", *words, name="one", subject="one")
    other = PipelineUp(tmp_path / "two", *words, name="two", subject="two")
    await run_command("apply", "-f", str(other.file), *words)
    theirs = await streams(nats_server)
    async with up:
        up.append(["a line"])
        await up.arrived(["a line"])
        refused = await up.run("delete", "-f", str(up.file), *words, "--yes")
    asked = await up.run("delete", "-f", str(up.file), *words)
    done = await up.run("delete", "-f", str(up.file), *words, "--yes")

    assert (refused.returncode, "stop it first" in refused.stderr) == (1, True)
    assert (asked.returncode, "--yes" in asked.stderr) == (1, True)
    assert done.returncode == 0, done.stderr
    assert await streams(nats_server) == theirs
    assert up.collected() == ["a line"]
    await up.run("delete", "-f", str(up.file), *words, "--yes", "--with-data")
    assert not up.layout.data.exists()


async def test_a_pipeline_with_its_own_server_is_deleted_with_its_data(tmp_path: Path) -> None:
    """Its streams are there; what others put into the folder stays, and a table elsewhere, which is
    named.
    """
    table = {"enabled": False, "path": "s3://lake/logs"}
    async with PipelineUp(tmp_path, table=table) as up:
        up.append(["a line"])
        await up.arrived(["a line"])
    (up.layout.data / "mine").touch()
    kept = await up.run("delete", "-f", str(up.file), "--yes")
    done = await up.run("delete", "-f", str(up.file), "--yes", "--with-data")

    assert (kept.returncode, "--with-data" in kept.stderr) == (1, True)
    assert done.returncode == 0, done.stderr
    assert "kept the table in s3://lake/logs" in done.stdout
    assert [path.name for path in up.layout.data.iterdir()] == ["mine"]
