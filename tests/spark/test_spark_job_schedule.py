"""A job on schedule ends its JVM between two runs, keeps its page well, and begins anew."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.running import service
from ports import free_port
from spark_jobs import COMMAND, Archive
from spark_streams import Streams
from waiting import eventually

pytest_plugins = ["spark_archive_fixtures"]

pytestmark = pytest.mark.timeout(300)
WITHIN_S = 90.0
EVERY_S = 1


def has_lines(archive: Archive, count: int) -> bool:
    """Whether there is a table of *count* lines."""
    return Path(archive.settings.path).exists() and len(archive.lines()) == count


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


def is_ready(port: int) -> bool:
    """Whether the job's page says so; before it is there it says nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.spark42
async def test_a_job_on_schedule_runs_again_and_has_no_jvm_meanwhile(
    streams: Streams, archive: Archive
) -> None:
    """Its page is well while it waits, and it ends at once when it is asked to."""
    port = free_port()
    file = archive.write(trigger="schedule", every=f"{EVERY_S}s")
    with (archive.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "archive", "run", *archive.places(file), "--http", f"127.0.0.1:{port}"],
            stdout=log,
            stderr=log,
        )
    try:
        for count in (1, 2):
            await asyncio.to_thread(streams.send, "node-a", f"line {count}")
            has_all = partial(has_lines, archive, count)
            await eventually(has_all, within_s=WITHIN_S, what="lines in the table")
            has_none = partial(has_no_java, process.pid)
            await eventually(has_none, within_s=WITHIN_S, what="the end of the JVM")
            assert is_ready(port)
        process.send_signal(signal.SIGTERM)

        assert process.wait(WITHIN_S) == 0
    finally:
        process.kill()
        process.wait()


def test_a_second_process_of_the_same_folder_is_told(archive: Archive) -> None:
    """By its name it would pass for the first one that was started again, and take it away."""
    with service._alone(archive.settings), pytest.raises(Refused, match="another process keeps"):
        service.run(archive.settings, host="127.0.0.1", port=0, is_once=True)
