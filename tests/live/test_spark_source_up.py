"""Spark reads the streams of a pipeline that `logpipeline up` runs by what a command prints."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from components.pipeline_up import PipelineUp
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.datasource import JetStreamReader
from logpipeline_spark.source.options import parse

LINES = [f"line {number}" for number in range(100)]


def lines_read(options: dict[str, str]) -> list[tuple[str, str]]:
    """Return host and text of each line, as a table has them."""
    reader = JetStreamReader(parse(options))
    rows = [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    return [(row["host"], row["line"]) for row in rows]


async def test_a_pipeline_that_runs_here_says_how_spark_reads_it(tmp_path: Path) -> None:
    """Where its server is, and a user that may read and nothing else; without it, what to do."""
    async with PipelineUp(tmp_path) as up:
        up.append(LINES)
        await up.arrived(LINES)
        printed = await up.run("stream", "options", "-o", "json")
        options = json.loads(printed.stdout)
        found = await asyncio.to_thread(lines_read, options)
        servers = {"servers": options["servers"], "pipeline": "test"}
        with pytest.raises(Refused, match="`logpipeline stream options` prints them"):
            await asyncio.to_thread(lines_read, servers)

    assert options["pipeline"] == "default/test"
    assert options["inboxPrefix"] == "_INBOX_table"
    assert found == [("web1", line) for line in LINES]
