"""ClickHouse, by its HTTP interface: each batch is one insert, whose deduplication token is the
batch's name. A table remembers the tokens of its last inserts, if its engine is a replicated one or
its setting `non_replicated_deduplication_window` says so.
"""

from __future__ import annotations

import argparse
import logging
import re
from urllib.parse import quote, urlencode

from logpipeline.consuming.message import Batch
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain
from logpipeline_cli.sinks.http_client import Answer, HttpClient, http_options
from logpipeline_cli.sinks.line_requests import LineRequests

log = logging.getLogger(__name__)

_TABLE = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)\.)?([A-Za-z_][A-Za-z0-9_]*)")
CODE = "x-clickhouse-exception-code"
# Errors of the lines themselves: texts, numbers, dates and types that a column does not take.
REFUSED = frozenset({6, 26, 27, 38, 41, 53, 69, 72, 117})
# No such column, table or database; no right, wrong login; a read-only user or table; a setting.
MISDIRECTED = frozenset({16, 36, 47, 48, 60, 62, 81, 115, 164, 192, 193, 194, 242, 497, 516})
# The text of error 117 for a field without a column. All lines have that field: the table is wrong.
NO_COLUMN = "Unknown field"
CODE_DIGITS_MAX = 9
SETTINGS = {
    # The answer comes when the rows are in the table, and tells of every error.
    "wait_end_of_query": "1",
    "async_insert": "0",
    "insert_deduplicate": "1",
    # A field without a column is an error: by default it would be left out, silently.
    "input_format_skip_unknown_fields": "0",
    "date_time_input_format": "best_effort",
}
_WINDOW = re.compile(r"non_replicated_deduplication_window\s*=\s*[1-9]")


class ClickHouseDestination:
    """Inserts the lines into *table* of *database*; an empty database is the login's own."""

    def __init__(self, client: HttpClient, database: str, table: str) -> None:
        self._client = client
        self._database = database
        self._table = table
        self._requests = LineRequests(self._insert)

    async def open(self) -> None:
        """Look whether the table is there and remembers tokens, and warn if it does not.

        Raises:
            Misdirected: there is no such table, or we may not look.
            TryAgain: the server is away.
        """
        database = f"'{self._database}'" if self._database else "currentDatabase()"
        question = (
            "SELECT engine_full FROM system.tables "
            f"WHERE database = {database} AND name = '{self._table}' FORMAT TabSeparatedRaw"
        )
        try:
            answer = await self._client.post(question.encode(), {})
            self._check(answer)
        except Refused as error:
            raise Misdirected(str(error)) from error
        engine = answer.data.decode("utf-8", "replace").strip()
        if not engine:
            raise Misdirected(f"{self._client.where} has no table {self._name}: create it")
        if not (engine.startswith(("Replicated", "Shared")) or _WINDOW.search(engine)):
            log.warning(
                "table %s does not recognise an insert that comes again: after a crash some lines "
                "may be there twice; set non_replicated_deduplication_window, such as 1000",
                self._name,
            )

    async def write(self, batch: Batch) -> None:
        """Insert the lines; see `Destination.write`."""
        await self._requests.write(batch)

    async def _insert(self, name: str, lines: list[bytes]) -> None:
        query = {
            "query": f"INSERT INTO {self._name} FORMAT JSONEachRow",
            **SETTINGS,
            "insert_deduplication_token": name,
        }
        data = b"\n".join(lines) + b"\n"
        self._check(await self._client.post(data, {}, query=urlencode(query, quote_via=quote)))

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    @property
    def _name(self) -> str:
        return ".".join(filter(None, (self._database, self._table)))

    def _check(self, answer: Answer) -> None:
        """Return if *answer* says that all was done; else raise as `HttpClient.check` does."""
        text = answer.headers.get(CODE, "")
        code = int(text) if text.isdecimal() and len(text) <= CODE_DIGITS_MAX else 0
        reason = f"{self._client.where} answered {answer.status}: {answer.said}"
        if code in REFUSED and NO_COLUMN not in answer.said:
            raise Refused(reason)
        if code in MISDIRECTED or code in REFUSED:
            raise Misdirected(f"{reason}; check the table, the login and its rights")
        if code:
            raise TryAgain(reason)
        self._client.check(answer)


def destination_of(args: argparse.Namespace) -> ClickHouseDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    found = _TABLE.fullmatch(args.table)
    if found is None:
        raise UsageError(f"--table {args.table!r}: give a table, such as logs or shop.logs")
    return ClickHouseDestination(HttpClient(http_options(args)), found[1] or "", found[2])
