"""What docs/spark.md tells people to type does what it says: each snippet runs, on a real table and
a real stream.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from logpipeline.layout import Layout, RunRecord, default_data
from logpipeline.spec import parse
from logpipeline.spec.api import API_VERSION, KIND
from logpipeline.subjects import names_of
from logpipeline_spark.formats.choice import Format, logs_of
from logpipeline_spark.table.counts import by_minute, counted
from logpipeline_spark.table.files import ROLLUP_MINUTE, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import LocalStorage
from spark_versions import need_jars
from tables.local_spark import local_spark
from tables.made import LIFE, STREAM, kept, lines, opened
from tables.streams import PARTITIONS, Streams, running_streams

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
# What the page calls them, and what stands there in a test instead.
FOLDER, CATALOG = "/data/table", "/data/catalog.db"
SERVER = "nats://nats.example.net:4222"
ERRORS, MANY = "/data/errors", '"partitions", 10'
# What the page reads by a pipeline's name, and what stands for one that runs here.
BY_NAME = ("logging/prod", "default/docs")
MESSAGES = 30
ROWS = 2 * MESSAGES
COMMAND_WITHIN_S = 240

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def blocks(language: str) -> list[str]:
    """Return the snippets of a *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session as somebody has it who queries tables."""
    need_jars("delta")
    return local_spark()


@pytest.fixture(scope="module")
def folder(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What the page's names stand for: a table in each format, of a pipeline that runs here."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        layout = Layout(default_data("default", "docs"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        layout.data.mkdir(parents=True)
        _write_table(layout.table)
        _write_table(layout.data / "other", _iceberg(layout.data))
        with running_streams(data / "nats") as streams:
            _send(streams)
            _write_pipeline(layout, streams.server.url)
            yield {
                FOLDER: str(layout.table),
                CATALOG: str(layout.data / "catalog.db"),
                SERVER: streams.server.url,
                ERRORS: str(data / "errors"),
                MANY: f'"partitions", {PARTITIONS}',
            }


def _write_pipeline(layout: Layout, server: str) -> None:
    spec = {"partitions": PARTITIONS, "table": {"enabled": True}}
    resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "docs"}, "spec": spec}
    layout.pipeline.write_text(yaml.safe_dump(resource))
    # This process stands for `up`: the pipeline runs as long as it does.
    RunRecord("docs", "default", os.getpid(), server).write(layout)


def _iceberg(folder: Path) -> dict[str, str]:
    """Return the page's catalogue."""
    return {"table": "logs.prod", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}


def _write_table(folder: Path, catalog: dict[str, str] | None = None) -> None:
    storage = LocalStorage(folder)
    format: Format = "delta" if catalog is None else "iceberg"
    table = opened(storage, of=logs_of(format, storage, catalog=catalog or {}, s3=S3Options()))
    begin = datetime.now(UTC) - timedelta(minutes=20)
    rows = lines(1, MESSAGES, begin=begin, step=timedelta(seconds=10))
    name = FileName(STREAM, LIFE, 1, MESSAGES, table.writer)
    added = write_range(storage, [rows], name)
    added += write_range(storage, [by_minute(counted(rows))], name, area=ROLLUP_MINUTE)
    table.commit_batch("0", {STREAM: Range(LIFE, 1, MESSAGES)}, added, kept(table))
    table.close()


def _send(streams: Streams) -> None:
    for number in range(MESSAGES):
        streams.send("node-a", f"line {number}")
    for pipeline in BY_NAME:
        names = names_of(*pipeline.split("/"), subject=None, stream=None)
        streams.create(names.stream(0), subjects=[f"{names.subject}.p0.>"])
        for number in range(MESSAGES):
            streams.publish(f"{names.subject}.p0.node-a", b"line %d" % number)


def here(text: str, folder: dict[str, str]) -> str:
    """Return *text* with this test's places instead of the page's."""
    for name, place in folder.items():
        text = text.replace(name, place)
    return text


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_resources_are_good_ones(number: int) -> None:
    """Whoever copies one gets what it shows."""
    snippet = yaml.safe_load(blocks("yaml")[number])
    parse({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}, **snippet})


def test_commands_succeed(folder: dict[str, str]) -> None:
    """As they stand there, in the shell, beside a pipeline that runs."""
    commands = [
        line
        for block in blocks("sh")
        for line in block.splitlines()
        if not line.startswith("pip install")
    ]
    printed = [_printed(here(command, folder)) for command in commands]

    assert len(printed) >= 2
    assert re.search(rf"node-a +{ROWS}\b", printed[0])
    assert re.search(r"pipeline +default/docs", printed[-1])


def _printed(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_WITHIN_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_python_finds_every_line(spark: SparkSession, folder: dict[str, str]) -> None:
    """Whatever a snippet calls a table, a frame or a count has all rows; each goes on where the one
    before it ended.
    """
    names: dict[str, Any] = {"spark": spark}
    checked = 0
    for number, block in enumerate(blocks("python")):
        names |= dict.fromkeys(("table", "frame", "count", "hosts"))
        exec(compile(here(block, folder), f"spark.md, Python {number}", "exec"), names)
        for name, rows in (("table", ROWS), ("frame", ROWS), ("hosts", 1)):
            if names[name] is not None:
                assert len(names[name]) == rows, f"{name} of:\n{block}"
                checked += 1
        if names["count"] is not None:
            assert names["count"] == [(ROWS,)]
            checked += 1

    assert checked >= 5
    assert names["lines"].isStreaming
    assert names["query"].exception() is None
    assert names["behind"] == 0
    assert (Path(folder[ERRORS]) / "batch=0" / "_SUCCESS").exists()


def test_a_stream_is_read_as_the_page_shows(spark: SparkSession, folder: dict[str, str]) -> None:
    """The same options, once to the end: all lines are there."""
    found = [block for block in blocks("python") if '"jetstream"' in block]
    for block in found:
        names: dict[str, Any] = {"spark": spark}
        exec(here(block, folder).replace("readStream", "read"), names)
        assert names["lines"].where("host = 'node-a'").count() == MESSAGES, block

    assert len(found) == 3


def test_sql_finds_every_line(spark: SparkSession, folder: dict[str, str]) -> None:
    """After the table was given a name."""
    asked = 0
    for block in blocks("sql"):
        for statement in filter(str.strip, here(block, folder).split(";")):
            found = spark.sql(statement).collect()
        assert [tuple(row) for row in found] == [("node-a", ROWS)], block
        asked += 1

    assert asked == 1
