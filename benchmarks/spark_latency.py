"""The time from a written line to a row that a query sees, with all parts running."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logpipeline.layout import Layout
from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage
from processes import stop

LINES_PER_S = 20
POLL_S = 0.02
START_WITHIN_S = 90.0
ARRIVE_WITHIN_S = 60.0
RESOURCE = """
apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata: {{name: bench}}
spec:
  partitions: 10
  collectors: {{replicas: 1}}
  table: {{enabled: true, every: 1s}}
  local:
    shippers:
    - name: bench
      host: bench
      files: [{{include: ["{folder}/*.log"]}}]
"""


class Reader:
    """Looks into the table again and again, and notes when it sees which line first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: set[str] = set()
        self.seen_s: dict[str, float] = {}

    def look(self) -> None:
        """Read the files that are new."""
        storage = LocalStorage(self._folder)
        logs = logs_of("delta", storage, catalog={}, s3=S3Options())
        new = [entry for entry in files(logs) if entry.path not in self._read]
        for table in tables(storage, new, LINES):
            now_s = time.monotonic()
            for line in table["line"].to_pylist():
                self.seen_s.setdefault(line, now_s)
        self._read.update(entry.path for entry in new)

    def until(self, line: str, within_s: float) -> None:
        """Look until *line* is there.

        Raises:
            TimeoutError: it does not come.
        """
        deadline = time.monotonic() + within_s
        while line not in self.seen_s:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{line!r} did not come into the table within {within_s:g} s")
            self.look()
            time.sleep(POLL_S)


def latencies(folder: Path, *, seconds: int) -> list[float]:
    """Return how long each line took, in seconds, of a small load that lasts for *seconds*."""
    source = folder / "logs" / "app.log"
    source.parent.mkdir(parents=True)
    source.write_text("begin\n")
    with _up(folder):
        reader = Reader(Layout(folder / "data").table)
        # A JVM starts meanwhile, and its first batch is a slow one.
        reader.until("begin", START_WITHIN_S)
        written_s: dict[str, float] = {}
        writer = threading.Thread(target=_write, args=(source, seconds, written_s))
        writer.start()
        while writer.is_alive():
            reader.look()
            time.sleep(POLL_S)
        reader.until(list(written_s)[-1], ARRIVE_WITHIN_S)
    assert reader.seen_s.keys() == {"begin", *written_s}
    return [reader.seen_s[line] - began_s for line, began_s in written_s.items()]


def _write(source: Path, seconds: int, written_s: dict[str, float]) -> None:
    begun_s = time.monotonic()
    with source.open("a", buffering=1) as file:
        for number in range(seconds * LINES_PER_S):
            time.sleep(max(0.0, begun_s + number / LINES_PER_S - time.monotonic()))
            line = f"line {number} of the small load"
            written_s[line] = time.monotonic()
            file.write(line + "\n")


@contextmanager
def _up(folder: Path) -> Iterator[None]:
    resource = folder / "pipeline.yaml"
    resource.write_text(RESOURCE.format(folder=folder / "logs"))
    words = ["up", "-f", str(resource), "--data", str(folder / "data")]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "logpipeline_cli", *words], stdout=log, stderr=log
        )
    try:
        yield
        process.send_signal(signal.SIGINT)
    finally:
        stop(process)


def percentile(values: list[float], share: int) -> float:
    """Return below what *share* percent of *values* are."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]
