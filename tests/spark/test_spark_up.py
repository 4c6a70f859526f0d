"""``logpipeline up`` with a table: lines stand in files and in the table, over stops and kills."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from components.contents import modes_below
from components.pipeline_up import PipelineUp
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.verify import verify
from tables.made import logs
from waiting import eventually

# A JVM starts in some seconds, on a busy machine in more.
IN_TABLE_S = 240.0


def numbered(first: int, end: int) -> list[str]:
    """Return lines that are all different."""
    return [f"line {number}" for number in range(first, end)]


class UpWithTable(PipelineUp):
    """A pipeline that keeps a table."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        super().__init__(folder, table={"enabled": True, "every": "1s"}, **spec)

    @property
    def storage(self) -> LocalStorage:
        """Where its table lies."""
        return LocalStorage(self.layout.table)

    def rows(self) -> list[str]:
        """The table's lines, in the order of their bytes."""
        if not self.layout.table.is_dir():
            return []
        found = tables(self.storage, files(logs(self.storage)), LINES)
        rows = [row for table in found for row in table.to_pylist()]
        return [row["line"] for row in sorted(rows, key=lambda row: row["offset"])]

    async def in_table(self, lines: list[str]) -> None:
        """Return when exactly *lines* are in the table."""
        await eventually(
            lambda: len(self.rows()) >= len(lines), within_s=IN_TABLE_S, what="lines in the table"
        )
        assert self.rows() == lines


@pytest.fixture
def up(tmp_path: Path) -> UpWithTable:
    """A pipeline that is not started yet."""
    return UpWithTable(tmp_path)


async def test_lines_stand_in_the_table_once_whatever_ends(up: UpWithTable) -> None:
    """The job and its JVM are killed, everything is stopped and started again: it goes on."""
    async with up:
        up.append(numbered(0, 1000))
        await up.in_table(numbered(0, 1000))
        assert not [path for path, mode in modes_below(up.layout.table) if mode & 0o007]
        up.append(numbered(1000, 1500))
        await up.kill("table")
        up.append(numbered(1500, 2000))
        await up.in_table(numbered(0, 2000))
        assert await up.stop(signal.SIGINT) == 0
    up.append(numbered(2000, 2100))
    async with up:
        await up.in_table(numbered(0, 2100))
        await up.arrived(numbered(0, 2100))
        told = await up.run("table", "verify")

    assert told.returncode == 0, told.stdout
    assert "The table is well." in told.stdout
    assert verify(up.storage, logs(up.storage)).is_well


async def test_other_shippers_leave_the_table_as_it_is(tmp_path: Path) -> None:
    """They are stopped and started; the table's job runs on. One stream holds all partitions."""
    up = UpWithTable(tmp_path, stream={"layout": "single"})
    async with up:
        up.append(numbered(0, 10))
        await up.in_table(numbered(0, 10))
        before = up.pids()["table"]
        more = {"name": "more", "host": "web2", "files": [{"include": [f"{up.logs}/*.other"]}]}
        up.spec["local"]["shippers"].append(more)
        up.write()
        await eventually(lambda: "shipper-more" in up.pids(), within_s=IN_TABLE_S)
        up.append(numbered(10, 20))
        await up.in_table(numbered(0, 20))

        assert up.pids()["table"] == before


async def test_a_pipeline_of_which_nothing_is_said_keeps_a_table(tmp_path: Path) -> None:
    """The first question about its lines is answered without a word of YAML about tables."""
    up = PipelineUp(tmp_path)
    del up.spec["table"]
    up.write()
    async with up:
        up.append(numbered(0, 10))

        async def answered() -> bool:
            answer = await up.run("query", "SELECT count(*) AS n FROM lines", "-o", "json")
            return answer.returncode == 0 and json.loads(answer.stdout) == [{"n": 10}]

        await eventually(answered, within_s=IN_TABLE_S, what="an answer")


@pytest.mark.parametrize("table", [{"enabled": True}, {}], ids=["asked for", "by default"])
async def test_without_java_a_pipeline_runs_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    """Files are written, and nothing waits for a table that cannot be. Whoever starts it, looks
    at it or asks it is told what to install.
    """
    up, nowhere = PipelineUp(tmp_path, table=table), tmp_path / "bin"
    nowhere.mkdir()
    monkeypatch.setenv("PATH", str(nowhere))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    async with up:
        up.append(numbered(0, 10))
        await up.arrived(numbered(0, 10))
        assert "table" not in up.pids()
        told = [await up.run(*words) for words in (["status"], ["query", "SELECT 1"])]

    for text in (up.log(), *(each.stdout + each.stderr for each in told)):
        assert "there is no Java on this machine" in text
        assert "openjdk-17-jre-headless" in text
    assert [each.returncode for each in told] == [0, 1]
