"""Checks of the results against the written lines: the time of a run that loses lines is worth
nothing.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

# Bytes that a runtime puts before the text of a line.
HEAD_BYTES = len("2026-11-21T10:00:00.000000000Z stdout F ")
# The number of lines, and a sum over them that does not depend on their order.
Sum = tuple[int, int]


def sum_of(files: str, column: str, *, skipped: int) -> Sum:
    """Return the sum of *column* of Parquet *files*, without the first *skipped* bytes of each."""
    return _sum(f"read_parquet('{files}')", column, skipped)


def sum_of_text(source: Path) -> Sum:
    """Return the sum of the lines that were written, without what the runtime puts before them."""
    lines = pa.table({"line": pa.array(source.read_text().split("\n")[:-1])})
    with duckdb.connect() as connection:
        connection.register("source", lines)
        return _sum("source", "line", HEAD_BYTES, connection)


def _sum(
    table: str, column: str, skipped: int, connection: duckdb.DuckDBPyConnection | None = None
) -> Sum:
    found = (connection or duckdb.connect()).sql(
        f"select count(*), sum(hash(substring({column}, {skipped + 1}))::hugeint) from {table}"
    )
    row = found.fetchall()[0]
    return int(row[0]), int(row[1])


def counts_of(files: str, minute: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return lines and bytes of each minute and level in *files*."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        rows = connection.sql(
            f"select {minute}, level, sum(lines), sum(bytes) from read_parquet('{files}') "
            "group by all"
        ).fetchall()
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in rows}
