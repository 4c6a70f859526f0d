"""What a table that does not move means for a pipeline on one machine, and what `status` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.pipeline_up import PipelineUp
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.tables.progress import TableProgress, table_key
from waiting import WITHIN_S, eventually

CAPACITY = 60
# A message each.
LINE = "x" * 1000


@pytest.mark.long
async def test_files_go_on_beside_a_table_that_does_not_move(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """More lines than the stream holds are in the files, in order. The table is named while it
    holds trimming back, and then with what it misses.
    """
    up = PipelineUp(
        tmp_path, "--nats", nats_server.url, partitions=0, batch={"maxBytes": 1024},
        stream={"name": "LOGS", "maxMsgs": CAPACITY},
        # Trimming waits for the collectors' snapshots.
        collectors={"replicas": 1, "snapshotEvery": "1s"},
    )  # fmt: skip
    lines = [f"{number} {LINE}" for number in range(2 * CAPACITY)]
    async with up:
        await stuck_table(nats_server.url)
        some = 2 * CAPACITY // 3
        up.append(lines[:some])
        await up.arrived(lines[:some])

        async def held() -> bool:
            return "holds trimming back" in (await up.run("status")).stdout

        await eventually(held, what="a table that holds trimming back")
        check = await up.run("status", "--check")
        up.append(lines[some:])
        await up.arrived(lines)

        async def named() -> bool:
            # Trimming may go on between the two.
            status, text = await up.json("status"), (await up.run("status")).stdout
            (table,) = status["tables"]
            (row,) = table["streams"]
            missed = table["missed_messages"]
            assert missed == row["missed"][-1]["last"] > 0
            return f"table audit/second misses messages 1 to {missed} of LOGS_0" in text

        await eventually(named, what="what the table misses")

    assert check.returncode == 1
    assert "table audit/second holds trimming back: LOGS_0 is" in check.stdout


async def stuck_table(url: str) -> None:
    """Have another pipeline's table that has read nothing, and never will."""
    connection = Connection(NatsOptions(servers=(url,)))
    await connection.start(patience_s=WITHIN_S)
    try:
        progress = TableProgress(path="/t", commit=0, rows=0, at_ns=1, streams={})
        bucket = Bucket(JetStream(connection), "LOGS_state")
        await bucket.put(table_key("audit", "second"), progress.encode())
    finally:
        await connection.close()
