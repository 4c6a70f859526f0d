"""DuckDB over a table: no Java, and nothing but what is asked for is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from logpipeline.multiline import Rules
from logpipeline_cli.errors import CliError
from logpipeline_spark.errors import Refused
from logpipeline_spark.events import duckdb_query
from logpipeline_spark.formats.choosing import Logs
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.rollup.counts import MINUTES, SOURCES
from logpipeline_spark.table.arrow import dataset
from logpipeline_spark.table.names import LINES as LINES_AREA
from logpipeline_spark.table.names import ROLLUP_MINUTE, ROLLUP_SOURCE
from logpipeline_spark.table.reading import files
from logpipeline_spark.table.storage import Storage

try:
    import duckdb
except ImportError:
    raise CliError("duckdb is not installed: pip install 'logpipeline[query]'") from None

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
    multiline: Sequence[Rules] = (),
) -> duckdb.DuckDBPyConnection:
    """Return a connection that has `VIEWS`, of what was stored from *since* to before *until*, and
    the view `events` of the lines, joined as *multiline* says.

    Raises:
        Refused: there is no table, or it is damaged.
        CliError: an expression is none that DuckDB knows.
    """
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    empty = True
    for name, area, schema in VIEWS:
        entries = files(logs, since, until, area=area)
        # Also columns that people asked for.
        schema = logs[area].schema() or schema
        empty = empty and not entries
        connection.register(f"all_{name}", dataset(storage, entries, schema))
        conditions = [
            f"ts {comparison} TIMESTAMPTZ '{moment.astimezone(UTC).isoformat()}'"
            for comparison, moment in ((">=", since), ("<", until))
            if moment is not None
        ]
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
