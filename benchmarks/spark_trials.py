"""One measurement of one case, in a process with its own Spark: the job's, or a Spark for text,
with the same options of Java or with the defaults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

import spark_cases as cases
from logpipeline_spark.job.spark import JAVA, session
from processes import cost_of, cpu_of_tree, parent_of

MASTER = "local[2]"
TEXT, TEXT_COUNTS = "text to parquet", "text to counts"
# The defaults of Java: a fully optimizing compiler, and a collector for many cores.
AS_STARTED = ", as people start it"
TEXT_AS_STARTED, TEXT_COUNTS_AS_STARTED = f"{TEXT}{AS_STARTED}", f"{TEXT_COUNTS}{AS_STARTED}"
OF_TEXT = (TEXT, TEXT_COUNTS)
OF_TEXT_AS_STARTED = (TEXT_AS_STARTED, TEXT_COUNTS_AS_STARTED)
TABLE, TABLE_COUNTS = "streams to table", "streams to table and counts"
LINE, COUNTS = "streams to line alone", "streams to counts"
NAMES = (
    TEXT, TEXT_AS_STARTED, TABLE, TABLE_COUNTS, LINE, TEXT_COUNTS, TEXT_COUNTS_AS_STARTED, COUNTS,
)  # fmt: skip
# The prefix of the line with a result: Spark prints as well.
RESULT = "result: "
ENDS_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Place:
    """The place of the lines: the file *source*, and the server at *url*, which is process *pid*;
    *folder* holds the results.
    """

    source: str
    url: str
    pid: int
    folder: str

    def of(self, case: str) -> Path:
        """Return the path of the result of *case*."""
        return Path(self.folder) / case.replace(",", "").replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Trial:
    """The cost of one run: *cpu_s* of Python, JVM and workers."""

    seconds: float
    cpu_s: float
    server_cpu_s: float


def measure(spark: SparkSession, case: str, place: Place) -> Trial:
    """Run *case* once."""
    do = _doing(spark, case, place)
    # Earlier data must not be written to disk during the measurement.
    os.sync()
    server, tree = cost_of(place.pid).cpu_s, cpu_of_tree(os.getpid())
    started = time.monotonic()
    do(place.of(case))
    seconds = time.monotonic() - started
    server = cost_of(place.pid).cpu_s - server
    tree = cpu_of_tree(os.getpid()) - tree
    # The server may be a child of this process.
    return Trial(seconds, tree - (server if parent_of(place.pid) == os.getpid() else 0.0), server)


def _doing(spark: SparkSession, case: str, place: Place) -> Callable[[Path], None]:
    source, url = Path(place.source), place.url
    return {
        TEXT: partial(cases.text_to_parquet, spark, source),
        TEXT_AS_STARTED: partial(cases.text_to_parquet, spark, source),
        TABLE: partial(cases.job, spark, url, has_rollups=False),
        TABLE_COUNTS: partial(cases.job, spark, url, has_rollups=True),
        LINE: partial(cases.line_alone, spark, url),
        TEXT_COUNTS: partial(cases.text_to_counts, spark, source),
        TEXT_COUNTS_AS_STARTED: partial(cases.text_to_counts, spark, source),
        COUNTS: partial(cases.counts_alone, spark, url),
    }[case]


def bench_session(case: str, folder: Path) -> SparkSession:
    """Return a Spark of this process alone, as those have it who do *case*; its workers find the
    cases.
    """
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    if case not in (*OF_TEXT, *OF_TEXT_AS_STARTED):
        return session("bench", folder=folder, master=MASTER)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(MASTER).config("spark.driver.memory", "1g")
    if case in OF_TEXT:
        builder = builder.config("spark.driver.extraJavaOptions", JAVA)
    for option in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(option, "false")
    return builder.config("spark.local.dir", str(folder / "scratch")).getOrCreate()


class Process:
    """A process with a Spark that runs one case after the other."""

    def __init__(self, first: str, place: Place) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, first, json.dumps(asdict(place))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def measure(self, case: str) -> Trial:
        """Run *case* in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(case, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(RESULT):
                return Trial(**json.loads(line.removeprefix(RESULT)))
        raise RuntimeError(f"the process that runs {case!r} ended: run it by hand to see why")

    def end(self) -> None:
        """End it, and wait until it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ENDS_WITHIN_S)


def fresh(case: str, place: Place) -> Trial:
    """Run *case* in a Spark that has not run anything yet."""
    process = Process(case, place)
    try:
        return process.measure(case)
    finally:
        process.end()


def main(first: str, where: str) -> None:
    """Measure each case in standard input."""
    place = Place(**json.loads(where))
    # Not in the folder of results, which is removed with each round.
    spark = bench_session(first, Path(place.folder).with_suffix(".spark") / place.of(first).name)
    for line in sys.stdin:
        print(f"{RESULT}{json.dumps(asdict(measure(spark, line.strip(), place)))}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
