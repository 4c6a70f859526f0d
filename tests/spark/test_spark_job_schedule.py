"""A job ends its JVM where it has nothing to do for long, keeps its page well, and begins anew."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.job import service
from ports import free_port
from tables.jobs import COMMAND, Table
from tables.streams import Streams
from waiting import eventually

pytest_plugins = ["tables.table_fixtures"]

WITHIN_S = 240.0
EVERY_S = 1
# The job, with less patience for lines that do not come.
RESTING = [
    sys.executable,
    "-c",
    "import sys\n"
    "from logpipeline_cli.main import main\n"
    "from logpipeline_spark.job import spark\n"
    "spark.REST_AFTER_S = 1.0\n"
    "sys.exit(main())\n",
]
# What a table costs to which no lines come: its Python alone is there.
IDLE_BYTES_MAX = 300 * 10**6
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "on schedule": (COMMAND, {"trigger": "schedule", "every": f"{EVERY_S}s"}),
    "without lines": (RESTING, {"every": f"{EVERY_S}s"}),
}


def has_lines(table: Table, count: int) -> bool:
    """Whether there is a table of *count* lines."""
    return Path(table.settings.path).exists() and len(table.lines()) == count


def has_no_java(pid: int) -> bool:
    """Whether no JVM is there that *pid* started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "java" and int(rest.split()[1]) == pid:
            return False
    return True


def memory_of(pid: int) -> int:
    """The bytes of memory that the process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_ready(port: int) -> bool:
    """Whether the job's page says so; before it is there it says nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.spark43
@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_without_work_has_no_jvm_and_begins_anew(
    streams: Streams, table: Table, kind: str
) -> None:
    """Its page is well while it waits, and it ends at once when it is asked to."""
    port = free_port()
    command, said = KINDS[kind]
    file = table.write(**said)
    with (table.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "table", "run", *table.places(file), "--http", f"127.0.0.1:{port}"],
            stdout=log,
            stderr=log,
        )
    try:
        for count in (1, 2):
            await asyncio.to_thread(streams.send, "node-a", f"line {count}")
            has_all = partial(has_lines, table, count)
            await eventually(has_all, within_s=WITHIN_S, what="lines in the table")
            has_none = partial(has_no_java, process.pid)
            await eventually(has_none, within_s=WITHIN_S, what="the end of the JVM")
            assert is_ready(port)
            assert memory_of(process.pid) < IDLE_BYTES_MAX
        process.send_signal(signal.SIGTERM)

        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_second_process_of_the_same_folder_is_told(table: Table) -> None:
    """By its name it would pass for the first one that was started again, and take it away."""
    with (
        service._alone(table.settings),
        pytest.raises(Refused, match=rf"another process \({os.getpid()}\) keeps"),
    ):
        service.run(table.settings, host="127.0.0.1", port=0, is_once=True)
