"""Shippers of another kind count partitions as they were told, or not at all."""

from __future__ import annotations

from pathlib import Path

from components.contents import contents_below
from components.pipeline_up import PipelineUp, run_command
from components.shipping import jetstream
from logpipeline.embedded import EmbeddedServer
from logpipeline.partition import partition_of
from logpipeline.spec import load
from waiting import eventually

PARTITIONS = 10
COUNTS = range(21)
HOSTS_PER_COUNT = 5


async def test_lines_of_shippers_with_any_count_of_partitions_are_in_files(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """From none to twice as many as ours, by plain publishing: nobody says where a line went."""
    hosts = {f"host-{count}-{n}": count for count in COUNTS for n in range(HOSTS_PER_COUNT)}
    lines = {host: [f"{host} line {number}" for number in range(3)] for host in hosts}
    async with PipelineUp(
        tmp_path, "--nats", nats_server.url, partitions=PARTITIONS, collectors={"replicas": 2}
    ) as up:
        root = load(up.file).names.subject
        async with jetstream(nats_server) as js:
            for host, count in hosts.items():
                for line in lines[host]:
                    subject = f"{root}.p{partition_of(host, count)}.{host}"
                    await js.connection.publish(subject, line.encode())

        def collected() -> dict[str, list[str]]:
            return {
                path.parents[1].name: data.decode().splitlines()
                for path, _, data in contents_below(up.layout.data)
                if path.name == "_lines.log"
            }

        await eventually(lambda: collected() == lines, what="all lines are in files")
        words = ["-f", str(up.file), "--data", str(up.layout.data), "--nats", nats_server.url]
        check = await run_command("status", "--check", *words)

    assert check.returncode == 0, check.stdout
