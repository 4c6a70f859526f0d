"""The job as `logpipeline table run` does it, in a test's own process or as the command; and what
anybody finds in its table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyspark.sql import SparkSession

from logpipeline.nats.bucket import Bucket, bucket_stream_config
from logpipeline.nats.options import NatsOptions
from logpipeline.subjects import Names
from logpipeline.tables.progress import TableProgress
from logpipeline_spark.job.service import Job, logs_for, storage_for
from logpipeline_spark.job.settings import JobSettings
from logpipeline_spark.job.spark import Engine
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.scan import files, tables
from tables.local_spark import local_spark
from tables.streams import BASE, PARTITIONS, STREAMS, Streams

NAMES = Names("logs", BASE)
KEY = "table.default/test"
COMMAND = [sys.executable, "-m", "logpipeline_cli"]
# A JVM starts in some seconds, on a busy machine in more.
COMMAND_WITHIN_S = 270.0


class Table:
    """The table of *streams* in *folder*, kept by one job after the other."""

    def __init__(self, streams: Streams, folder: Path, **changes: Any) -> None:
        self.streams = streams
        self.folder = folder
        bucket = bucket_stream_config(NAMES.state_bucket, replicas=1, storage="file", max_bytes=-1)
        streams.call(f"STREAM.CREATE.{bucket['name']}", bucket)
        self.settings = JobSettings(
            pipeline="default/test",
            path=str(folder / "table"),
            folder=folder,
            nats=NatsOptions(servers=(streams.server.url,)),
            streams=STREAMS,
            subject=NAMES.subject,
            partitions=PARTITIONS,
            bucket=NAMES.state_bucket,
            key=KEY,
            holder="test",
            is_scheduled=True,
        )
        self.change(**changes)

    def change(self, **changes: Any) -> None:
        """Let the next job have other settings."""
        self.settings = replace(self.settings, **changes)

    def keep(self, spark: SparkSession | None = None) -> Job:
        """Bring all that waits into the table, by Spark."""
        job = Job(self.settings, Engine(lambda: spark or local_spark()))
        job.run()
        return job

    def lines(self) -> list[tuple[str, str]]:
        """The table's lines with their hosts, in the order in which they were sent."""
        return [(row["host"], row["line"]) for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        """The table's rows, by host and place in the stream."""
        storage = storage_for(self.settings)
        logs = logs_for(self.settings, storage)
        found = pa.concat_tables([LINES.empty_table(), *tables(storage, files(logs), LINES)])
        order = [(name, "ascending") for name in ("host", "stream", "seq", "idx")]
        return list(found.sort_by(order).to_pylist())

    def told(self) -> TableProgress:
        """What it told of itself in the bucket."""
        entry = self.streams._run(lambda js: Bucket(js, NAMES.state_bucket).get(KEY))
        return TableProgress.decode(entry.value)

    def command(
        self, *words: str, environment: dict[str, str] | None = None, **table: Any
    ) -> subprocess.CompletedProcess[str]:
        """Carry out `logpipeline table`; *table* is put into the resource."""
        places = self.places(self.write(**table))
        return subprocess.run(
            [*COMMAND, "table", *words[:1], *places, *words[1:]],
            capture_output=True,
            text=True,
            timeout=COMMAND_WITHIN_S,
            env={**os.environ, **(environment or {})},
            check=False,
        )

    def write(self, **table: Any) -> Path:
        """Write the resource, and return where."""
        file = self.folder / "pipeline.yaml"
        self.folder.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(self._resource(table)))
        return file

    def places(self, file: Path) -> list[str]:
        """Return the words that say which resource, and where its data is."""
        return ["-f", str(file), "--data", str(self.folder / "data")]

    def _resource(self, table: dict[str, Any]) -> dict[str, Any]:
        said = {"enabled": True, "path": self.settings.path, "driverMemory": "512Mi", **table}
        return {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "test"},
            "spec": {
                "partitions": PARTITIONS,
                "subject": NAMES.subject,
                "stream": {"name": BASE},
                "nats": {"servers": [self.streams.server.url]},
                "table": said,
            },
        }


def one_sentence(done: subprocess.CompletedProcess[str], *, codes: tuple[int, ...] = (1, 2)) -> str:
    """Return what a command that failed says, and see that this is no trace."""
    said = [line for line in done.stderr.splitlines() if line.startswith("logpipeline: ")]
    assert done.returncode in codes, done.stderr
    assert len(said) == 1, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert "\tat " not in done.stderr, done.stderr
    return said[0]
