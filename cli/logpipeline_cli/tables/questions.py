"""What a report asks the counts, as SQL and as data: nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from logpipeline_spark.formats.choosing import Logs
from logpipeline_spark.rollup.counts import ERROR_LEVELS
from logpipeline_spark.table.names import LINES
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.verify import state_of

# A plot of more lines is no plot; the others are added up.
SERIES_MAX = 10
TALKERS_MAX = 20
OTHERS = "others"
# What of a row is drawn: lines whose time is not plausible stand nowhere in time. Rows of former
# versions do not say how large these were.
PLACED_LINES = "(lines - clamped)"
PLACED_BYTES = "(bytes - coalesce(clamped_bytes, bytes * clamped // lines))"
# Points of a line: a screen has few thousand columns.
POINTS_MAX = 1500
# A share of the few lines of a minute says little.
SHARE_STEP_S = 300
STEPS_S = (60, 300, 900, 3600, 6 * 3600, 86_400)

# A value that cannot be told is None: a share of nothing.
Point = tuple[datetime, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All that a page shows; series are by name, the largest first."""

    step_s: int
    first: datetime | None
    last: datetime | None
    lines: int
    bytes: int
    clamped: int
    by_level: dict[str, list[Point]]
    by_namespace: dict[str, list[Point]]
    by_host: dict[str, list[Point]]
    error_share: list[Point]
    talkers: list[tuple[str, int, int, int]]
    lags: list[Point]
    lost: list[tuple[str, int, int]]


def ask(connection: duckdb.DuckDBPyConnection, storage: Storage, logs: Logs) -> Answers:
    """Return what the page of *storage*'s table shows; *connection* has its counts."""
    first, last, lines, size, clamped = _row(
        connection, "SELECT min(ts), max(ts), sum(lines), sum(bytes), sum(clamped) FROM minutes"
    )
    step_s = step_of(first, last)
    gone = state_of(storage, logs).cover.missing()
    return Answers(
        step_s=step_s,
        first=first,
        last=last,
        lines=int(lines or 0),
        bytes=int(size or 0),
        clamped=int(clamped or 0),
        by_level=_series(connection, "coalesce(level, 'unknown')", PLACED_LINES, step_s),
        by_namespace=_series(
            connection, "coalesce(namespace, 'plain files')", PLACED_BYTES, step_s
        ),
        by_host=_series(connection, "coalesce(host, 'unknown')", PLACED_BYTES, step_s),
        error_share=_error_share(connection, max(step_s, SHARE_STEP_S)),
        talkers=_talkers(connection),
        lags=_lags(logs),
        lost=[(stream, each.first, each.last) for stream, each in gone],
    )


def step_of(first: datetime | None, last: datetime | None) -> int:
    """Return the seconds between two points, so that there are at most `POINTS_MAX`."""
    span_s = (last - first).total_seconds() if first and last else 0.0
    return next((step for step in STEPS_S if span_s / step <= POINTS_MAX), STEPS_S[-1])


def _series(
    connection: duckdb.DuckDBPyConnection, name: str, value: str, step_s: int
) -> dict[str, list[Point]]:
    rows = connection.execute(
        f"""
        WITH named AS (SELECT {name} AS name, ts, {value} AS value FROM minutes),
        largest AS (SELECT name FROM named GROUP BY name ORDER BY sum(value) DESC, name
                    LIMIT {SERIES_MAX})
        SELECT CASE WHEN name IN (FROM largest) THEN name ELSE '{OTHERS}' END AS shown,
               time_bucket(INTERVAL {step_s} SECOND, ts) AS bucket, sum(value)
        FROM named WHERE value > 0 GROUP BY ALL ORDER BY bucket
        """
    ).fetchall()
    found: dict[str, dict[datetime, float]] = {}
    for shown, at, total in rows:
        found.setdefault(shown, {})[at] = float(total)
    steps = steps_between([at for _, at, _ in rows], step_s)
    return {
        shown: [(at, totals.get(at, 0.0)) for at in steps]
        for shown, totals in sorted(found.items(), key=lambda item: -sum(item[1].values()))
    }


def steps_between(times: Sequence[datetime], step_s: int) -> list[datetime]:
    """Return each step from the first to the last of *times*, which begin steps. One that has no
    counts had no lines: a plot of the others alone would lead a line over it.
    """
    if not times:
        return []
    step, first = timedelta(seconds=step_s), min(times)
    return [first + number * step for number in range((max(times) - first) // step + 1)]


def _error_share(connection: duckdb.DuckDBPyConnection, step_s: int) -> list[Point]:
    levels = ", ".join(f"'{level}'" for level in ERROR_LEVELS)
    rows = connection.execute(
        f"""
        SELECT time_bucket(INTERVAL {step_s} SECOND, ts) AS bucket,
               sum({PLACED_LINES}) FILTER (WHERE level IN ({levels})) / sum({PLACED_LINES})
        FROM minutes WHERE {PLACED_LINES} > 0 GROUP BY bucket ORDER BY bucket
        """
    ).fetchall()
    shares = {at: float(share or 0.0) for at, share in rows}
    return [(at, shares.get(at)) for at in steps_between(list(shares), step_s)]


def _talkers(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int, int, int]]:
    rows = connection.execute(
        f"""
        SELECT concat_ws('/', host, namespace, pod, container), sum(bytes), sum(lines), sum(errors)
        FROM sources GROUP BY ALL ORDER BY sum(bytes) DESC, 1 LIMIT {TALKERS_MAX}
        """
    ).fetchall()
    return [(str(name), int(size), int(lines), int(errors)) for name, size, lines, errors in rows]


def _lags(logs: Logs) -> list[Point]:
    """Return how late the newest line of each batch came into the table."""
    lags: list[Point] = []
    for version in logs[LINES].history():
        if newest_us := int(version.said.get("newest_us") or 0):
            at = datetime.fromtimestamp(version.time_us / 1e6, UTC)
            lags.append((at, max(0.0, (version.time_us - newest_us) / 1e6)))
    return lags


def _row(connection: duckdb.DuckDBPyConnection, sql: str) -> Sequence[Any]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row
