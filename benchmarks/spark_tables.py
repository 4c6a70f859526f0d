"""Tables from streams, compared with Spark's usual way from text: run by ``make bench-spark``.

In one run the same lines become (a) Parquet by `spark.read.text`, (b) a table of the job with all
columns, without and with its counts, (c) Parquet with the one column of a text file, (d) counts per
minute and level, by regular expressions in Spark and by the job's tasks. Each case is measured
twice: as the first work of a Spark that has just started, as in a program that starts each hour;
and in a warm Spark, as in a job that runs all day. Text and job have the same options of Java,
which the result names; text without them, the default, is a case of its own. A cost is the CPU time
of Python, JVM and workers; that of nats-server is listed separately. Rounds go through the cases
forwards and backwards, and each result is compared with the written lines. At the end, (e), a
pipeline of all parts runs under a small load, and the time from a written line to a row in the
table is measured. Then, (f), the files of an hour are merged by the job's compaction.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import spark_checks as checks
import spark_lines
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline_spark.job.spark import JAVA
from run import Row, row_of
from spark_compaction import compaction_rows
from spark_latency import latencies, percentile
from spark_trials import (
    COUNTS,
    LINE,
    NAMES,
    OF_TEXT,
    OF_TEXT_AS_STARTED,
    TABLE,
    TABLE_COUNTS,
    TEXT,
    TEXT_AS_STARTED,
    TEXT_COUNTS,
    TEXT_COUNTS_AS_STARTED,
    Place,
    Process,
    Trial,
    fresh,
)

RESULT = Path(__file__).parent / "latest-spark.json"
AGAINST = {
    TEXT_AS_STARTED: TEXT,
    TEXT_COUNTS_AS_STARTED: TEXT_COUNTS,
    TABLE: TEXT,
    TABLE_COUNTS: TEXT,
    LINE: TEXT,
    COUNTS: TEXT_COUNTS,
}
# Java is fast only after some time.
WARM_UP_ROUNDS = 2
FRESH = "fresh: "


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="of a warm Spark")
    parser.add_argument("--fresh", type=int, default=2, help="rounds with a Spark for each case")
    parser.add_argument("--seconds", type=int, default=30, help="of the small load; 0: none")
    parser.add_argument("--merges", type=int, default=5, help="of the files of an hour; 0: none")
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logpipeline-bench-") as name:
        rows = asyncio.run(measured(Path(name), args))
        if args.seconds:
            rows += latency_rows(latencies(Path(name) / "up", seconds=args.seconds))
        if args.merges:
            rows += compaction_rows(Path(name), lines=args.lines, rounds=args.merges)
    result = {"java": JAVA, "rows": [asdict(row) for row in rows]}
    args.result.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        rival = f"  {row.ratio:.2f} x {row.against}" if row.ratio is not None else ""
        print(f"{row.case:36} {row.metric:16} {row.value:8.2f} {row.unit:6}{rival}")


async def measured(folder: Path, args: argparse.Namespace) -> list[Row]:
    """Write the lines, start a server with them, measure, and return the figures."""
    source = folder / "source.log"
    size = spark_lines.make_cri(source, lines=args.lines)
    async with EmbeddedServer(folder / "nats", ServerOptions(sync_interval="10s")) as server:
        messages = await spark_lines.fill(server.url, source)
        print(f"{args.lines} lines, {size / 1e6:.0f} MB, {messages} messages", flush=True)
        place = Place(str(source), server.url, server.pid, str(folder / "made"))
        written = checks.sum_of_text(source)
        first = await asyncio.to_thread(all_fresh, place, written, args.fresh)
        warm = await asyncio.to_thread(all_warm, place, written, args.rounds)
    return rows_of(first, FRESH) + rows_of(warm)


def all_fresh(place: Place, written: checks.Sum, count: int) -> dict[str, list[Trial]]:
    """Measure each case several times, each time as the first work of its own Spark."""
    trials: dict[str, list[Trial]] = {name: [] for name in NAMES} if count else {}
    for number in range(count):
        with made(place, written):
            for name in there_and_back(number):
                trials[name].append(printed(f"{FRESH}{name}", fresh(name, place)))
    return trials


def all_warm(place: Place, written: checks.Sum, rounds: int) -> dict[str, list[Trial]]:
    """Measure each case several times in a warm Spark: two of them for text, and one for
    the job.
    """
    trials: dict[str, list[Trial]] = {name: [] for name in NAMES}
    theirs, started, ours = (Process(name, place) for name in (TEXT, TEXT_AS_STARTED, TABLE))
    process_of = {
        **dict.fromkeys(NAMES, ours),
        **dict.fromkeys(OF_TEXT, theirs),
        **dict.fromkeys(OF_TEXT_AS_STARTED, started),
    }
    try:
        for number in range(rounds + WARM_UP_ROUNDS if rounds else 0):
            with made(place, written):
                for name in there_and_back(number):
                    trials[name].append(printed(name, process_of[name].measure(name)))
    finally:
        for process in (theirs, started, ours):
            process.end()
    return {name: runs[WARM_UP_ROUNDS:] for name, runs in trials.items()}


def there_and_back(number: int) -> tuple[str, ...]:
    """Return the order of round *number*: every second round is reversed."""
    return NAMES[::-1] if number % 2 else NAMES


def printed(name: str, trial: Trial) -> Trial:
    """Print the result for a waiting user."""
    print(f"{name:36} {trial.seconds:6.2f} s {trial.cpu_s:6.2f} CPU s", flush=True)
    return trial


@contextmanager
def made(place: Place, written: checks.Sum) -> Iterator[None]:
    """Give the block an empty folder, and compare the results of all cases with *written*.

    Raises:
        AssertionError: a line is lacking, is there twice, or is another one.
    """
    Path(place.folder).mkdir()
    yield
    head, table = checks.HEAD_BYTES, "lines/**/*.parquet"
    for case in (TEXT, TEXT_AS_STARTED):
        assert checks.sum_of(f"{place.of(case)}/*.parquet", "value", skipped=head) == written
    assert checks.sum_of(f"{place.of(TABLE)}/{table}", "line", skipped=0) == written
    assert checks.sum_of(f"{place.of(TABLE_COUNTS)}/{table}", "line", skipped=0) == written
    assert checks.sum_of(f"{place.of(LINE)}/*.parquet", "line", skipped=head) == written
    ours = "strftime(ts, '%Y-%m-%dT%H:%M')"
    counts = checks.counts_of(f"{place.of(TEXT_COUNTS)}/*.parquet", "minute")
    again = checks.counts_of(f"{place.of(TEXT_COUNTS_AS_STARTED)}/*.parquet", "minute")
    assert again == counts
    assert checks.counts_of(f"{place.of(COUNTS)}/*.parquet", ours) == counts
    in_table = f"{place.of(TABLE_COUNTS)}/rollup/minute/**/*.parquet"
    assert checks.counts_of(in_table, ours) == counts
    shutil.rmtree(place.folder)


def rows_of(trials: dict[str, list[Trial]], prefix: str = "") -> list[Row]:
    """Return the figures in the form of the other benchmarks."""
    rows = []
    for case, runs in trials.items():
        against = AGAINST.get(case, "")
        rivals = trials.get(against, [])
        rival = against and prefix + against
        for metric, unit, figure in METRICS:
            others = map(figure, rivals)
            rows.append(row_of(prefix + case, metric, unit, map(figure, runs), rival, others))
        if case not in (*OF_TEXT, *OF_TEXT_AS_STARTED):
            server = [trial.server_cpu_s for trial in runs]
            rows.append(row_of(prefix + case, "cpu nats-server", "CPU s", server))
    return rows


METRICS: tuple[tuple[str, str, Callable[[Trial], float]], ...] = (
    ("wall", "s", lambda trial: trial.seconds),
    ("cpu", "CPU s", lambda trial: trial.cpu_s),
)


def latency_rows(seconds: list[float]) -> list[Row]:
    """Return the figures of the small load."""
    case = "written line to row, every 1s"
    return [
        Row(case, f"p{share}", round(percentile(seconds, share), 3), "s", "", None, 0.0)
        for share in (50, 99)
    ] + [Row(case, "lines", len(seconds), "lines", "", None, 0.0)]


if __name__ == "__main__":
    main()
