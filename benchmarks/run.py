"""Runs every case some times, each beside its rival in the same run, and writes ``latest.json``."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dataset
import pipeline
import rsyslog
from trial import Trial

RESULT = Path(__file__).parent / "latest.json"
PARTITIONS = 10
# The last one has a server as in a cluster: with users and TLS.
OWN_CASES: dict[str, dict[str, Any]] = {
    "logpipeline zstd": {"compression": "zstd"},
    "logpipeline none": {"compression": "none"},
    "logpipeline zstd TLS": {"compression": "zstd", "is_managed": True},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the median, *against* the same of a rival, and (max - min) / median."""

    case: str
    metric: str
    value: float
    unit: str
    against: str
    ratio: float | None
    spread: float


METRICS: tuple[tuple[str, str, Callable[[Trial], float]], ...] = (
    ("throughput", "MB/s", lambda trial: trial.mb_per_s),
    ("lines", "lines/s", lambda trial: trial.lines_per_s),
    ("cpu", "CPU s/GB", lambda trial: trial.cpu_s_per_gb),
)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logpipeline-bench-") as name:
        trials = _measure(Path(name), size=args.megabytes * 1_000_000, runs=args.runs)
    rows = _rows(trials)
    args.result.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    for row in rows:
        rival = f"  {row.ratio:.2f} x {row.against}" if row.ratio is not None else ""
        print(f"{row.case:24} {row.metric:18} {row.value:12.1f} {row.unit:9}{rival}")


def _measure(folder: Path, *, size: int, runs: int) -> dict[str, list[Trial]]:
    source = folder / "source.log"
    lines = dataset.make_log(source, size=size)
    cases: dict[str, Callable[[Path], Trial]] = {
        name: partial(_moved, source=source, lines=lines, **options)
        for name, options in OWN_CASES.items()
    }
    if binary := rsyslog.find():
        cases["rsyslog"] = lambda place: rsyslog.run(binary, place, source, lines)
    else:
        print("rsyslog is not installed: no rival in this run")
    trials: dict[str, list[Trial]] = {name: [] for name in cases}
    for number in range(runs):
        # Alternately, so that a machine that slows down slows all of them.
        for name, case in cases.items():
            trials[name].append(case(folder / f"{name.replace(' ', '-')}-{number}"))
    return trials


def _moved(
    folder: Path, *, source: Path, lines: int, compression: str, is_managed: bool = False
) -> Trial:
    return pipeline.run(
        folder,
        source,
        lines,
        partitions=PARTITIONS,
        compression=compression,
        is_managed=is_managed,
    )


def _rows(trials: dict[str, list[Trial]]) -> list[Row]:
    rows = []
    rival = "rsyslog" if "rsyslog" in trials else ""
    for case, runs in trials.items():
        for metric, unit, figure in METRICS:
            against = rival if case != rival else ""
            others = map(figure, trials[rival]) if against else ()
            rows.append(row_of(case, metric, unit, map(figure, runs), against, others))
        for process in runs[0].costs:
            memory = [trial.costs[process].rss_bytes / 2**20 for trial in runs]
            rows.append(row_of(case, f"rss {process}", "MiB", memory))
            cpu = [trial.costs[process].cpu_s / (trial.bytes / 1e9) for trial in runs]
            rows.append(row_of(case, f"cpu {process}", "CPU s/GB", cpu))
    return rows


def row_of(
    case: str,
    metric: str,
    unit: str,
    figures: Iterable[float],
    against: str = "",
    others: Iterable[float] = (),
) -> Row:
    """Return the median of *figures*, beside that of *others*, the same of a rival."""
    values, rivals = list(figures), list(others)
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / middle if middle else 0.0
    ratio = round(middle / statistics.median(rivals), 3) if rivals else None
    return Row(case, metric, round(middle, 3), unit, against, ratio, round(spread, 3))


if __name__ == "__main__":
    main()
