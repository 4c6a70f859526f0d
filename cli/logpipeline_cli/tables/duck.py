"""A table as views of DuckDB, which needs no Java and reads only what a query needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import duckdb

from logpipeline.multiline import Rules
from logpipeline_cli.errors import CliError
from logpipeline_spark.errors import Refused
from logpipeline_spark.events import duckdb_query
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.counts import MINUTES, SOURCES
from logpipeline_spark.table.files import LINES as LINES_AREA
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.search import Search, dataset
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.word_filters import NOT_IN_WORDS, words_of

VIEWS = (
    ("lines", LINES_AREA, LINES),
    ("minutes", ROLLUP_MINUTE, MINUTES),
    ("sources", ROLLUP_SOURCE, SOURCES),
)


def opened(
    storage: Storage,
    logs: Logs,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    search: Search | None = None,
    multiline: Sequence[Rules] = (),
) -> duckdb.DuckDBPyConnection:
    """Return a connection with `VIEWS` of what was stored from *since* to before *until*, and of
    lines only those that *search* finds. The view `events` has the same lines, joined by the rules
    *multiline*.

    Raises:
        Refused: there is no table, or it is damaged.
        CliError: DuckDB does not accept an expression.
    """
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    empty = True
    for name, area, schema in VIEWS:
        entries = files(logs, since, until, area=area)
        # With the columns that users added.
        schema = logs[area].schema() or schema
        empty = empty and not entries
        texts = search.texts if search is not None and area == LINES_AREA else ()
        chosen = search.chosen(storage, entries) if search is not None and texts else {}
        connection.register(f"all_{name}", dataset(storage, entries, schema, chosen))
        conditions = [
            f"ts {comparison} TIMESTAMPTZ '{moment.astimezone(UTC).isoformat()}'"
            for comparison, moment in ((">=", since), ("<", until))
            if moment is not None
        ]
        conditions += [condition for text in texts for condition in _holding(text)]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM all_{name}{where}")
    if empty and not files(logs):
        raise Refused(f"{storage.url} holds no lines: see spec.table, and `logpipeline status`")
    if multiline:
        try:
            connection.execute(f"CREATE VIEW events AS {duckdb_query('lines', multiline)}")
        except duckdb.Error as error:
            raise CliError(
                f"--multiline-begin cannot be used: {error}; write it in RE2's syntax"
            ) from error
    return connection


def _holding(text: str) -> Iterator[str]:
    """Yield the conditions of a line that holds *text* as whole words."""
    yield f"contains(line, {_quoted(text)})"
    # A character that is never part of a word separates words itself.
    begin, end = (
        f"{edge}|{NOT_IN_WORDS}" if len(words_of(character)) else ""
        for edge, character in ((r"\A", text[0]), (r"\z", text[-1]))
    )
    yield f"regexp_matches(line, {_quoted(f'({begin}){re.escape(text)}({end})')})"


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
