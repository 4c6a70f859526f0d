"""``logpipeline query``: an SQL query, or a search, over the table's files."""

from __future__ import annotations

import argparse
import base64
import csv
import itertools
import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb

from logpipeline.multiline import chosen
from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.output import escaped, escaped_name, print_json, table
from logpipeline_cli.tables.duck import opened
from logpipeline_cli.tables.target import logs_for, storage_for
from logpipeline_cli.time_arguments import moment
from logpipeline_spark.table.search import Search

ROWS_AT_ONCE = 10_000
# More rows are of no use on a terminal; -o json and csv print all.
TEXT_ROWS_MAX = 10_000
# The query for a search without SQL.
FOUND = (
    "SELECT ts, host, namespace, pod, container, source, line FROM lines "
    "ORDER BY ts, stream, incarnation, seq, idx"
)
# Texts by which versions of DuckDB report that Arrow could not read a file.
_UNREAD = ("get_next failed", "reading the stream registered as")


def run(args: argparse.Namespace) -> int:
    """Print the result.

    Raises:
        CliError: there is no query, it has a mistake, or a file cannot be read.
        Refused: there is no table, or it is damaged.
    """
    search = Search(tuple(args.grep)) if args.grep else None
    if search is None and args.sql is None:
        raise CliError("there is no query: give one in SQL, or --grep with a word")
    if search is not None and not len(search.words):
        print("--grep has no word: all lines of that time are read", file=sys.stderr)
    question, show = args.sql or FOUND, _PRINTERS[args.output]
    if args.sql is None and args.output == "text":
        # With a limit, only so many rows are held for sorting.
        question, show = f"{FOUND} LIMIT {TEXT_ROWS_MAX + 1}", _lines
    now = datetime.now(UTC)
    since, until = moment(args.since, now=now), moment(args.until, now=now)
    storage = storage_for(args)
    rules = chosen(args.multiline or (), args.multiline_begin)
    with opened(
        storage,
        logs_for(args, storage),
        since=since,
        until=until,
        search=search,
        multiline=rules,
    ) as connection:
        try:
            answer = connection.execute(question)
            # A damaged file, or a value that cannot be converted, raises while rows are fetched.
            show([column[0] for column in answer.description or ()], answer)
        except duckdb.Error as error:
            raise CliError(_sentence(error)) from error
    return EXIT_OK


def _sentence(error: duckdb.Error) -> str:
    if any(said in str(error) for said in _UNREAD):
        return f"a file cannot be read (`logpipeline table verify` says which): {error}"
    return f"the query has a mistake: {error}"


def _lines(_: list[str], answer: duckdb.DuckDBPyConnection) -> None:
    """Print the rows of `FOUND`, each as one line."""
    for at, host, namespace, pod, container, source, line in answer.fetchmany(TEXT_ROWS_MAX):
        place = f"{namespace}/{pod}/{container}" if pod else source
        time = at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        print(_shown(f"{time}Z {host} {place} | {line}"))
    _say_more(answer)


def _text(names: list[str], answer: duckdb.DuckDBPyConnection) -> None:
    rows = answer.fetchmany(TEXT_ROWS_MAX)
    # A PIVOT makes columns' names of values.
    print(
        table(
            tuple(map(escaped_name, names)), [tuple(_shown(value) for value in row) for row in rows]
        )
    )
    _say_more(answer)


def _say_more(answer: duckdb.DuckDBPyConnection) -> None:
    if answer.fetchone() is not None:
        print(f"… and more rows: these are the first {TEXT_ROWS_MAX}", file=sys.stderr)


def _json(names: list[str], answer: duckdb.DuckDBPyConnection) -> None:
    keys = _distinct(names)
    print_json([dict(zip(keys, map(_plain, row), strict=True)) for row in answer.fetchall()])


def _distinct(names: Sequence[str]) -> list[str]:
    """Return *names*, those that come again with a number: an object has each name once."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        key = next(each for each in itertools.chain([name], numbered) if each not in found)
        found[key] = None
    return list(found)


def _csv(names: list[str], answer: duckdb.DuckDBPyConnection) -> None:
    # A program gets each value as it is, and a terminal nothing on which it would act.
    cell = _safe_cell if sys.stdout.isatty() else _cell
    writer = csv.writer(sys.stdout)
    writer.writerow(map(cell, names))
    while rows := answer.fetchmany(ROWS_AT_ONCE):
        writer.writerows([cell(value) for value in row] for row in rows)


def _shown(value: Any) -> str:
    # A line may contain control characters, on which a terminal would act.
    if isinstance(value, bytes):
        return escaped(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "" if value is None else escaped_name(str(_plain(value)))


def _cell(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, list | dict) else plain


def _safe_cell(value: Any) -> Any:
    cell = _cell(value)
    return escaped_name(cell) if isinstance(cell, str) else cell


def _plain(value: Any) -> Any:
    """Return *value* as JSON can hold it; bytes, which may be no valid text, as base64, and numbers
    that JSON lacks as text, as Spark's `to_json` has them.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


_PRINTERS: dict[str, Callable[[list[str], duckdb.DuckDBPyConnection], None]] = {
    "text": _text,
    "json": _json,
    "csv": _csv,
}
