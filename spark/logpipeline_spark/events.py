"""Stack traces as one row of a table; the lines themselves stay as they are.
`logpipeline.multiline` defines the rules, which its `Joiner` applies line by line. Here they are
SQL, for DuckDB and for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logpipeline.multiline import BLANK, LIMITS, OTHER, Join, Limits, Rules, chosen
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import LINES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The columns that an event takes from its first line; its level is that of the first line that has
# one.
COLUMNS = tuple(name for name in LINES.names if name not in ("line", "piece", "resent", "raw"))
# Only lines of one file are joined, and lines of a container only within one of its streams. A line
# without a file comes from another client: only lines of the same message have a common origin.
_KEYS = ("host", "source", "generation", "fd", "message")
_MESSAGE = (
    "CASE WHEN source IS NULL THEN concat_ws('/', stream, incarnation, CAST(seq AS STRING)) END"
)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The parts that differ between engines: the *quote* of names, a text as a *literal*, the test
    whether `line` *matches* an expression, its number of *bytes*, and the *text* of lines joined in
    the order of `n`.
    """

    quote: str
    literal: Callable[[str], str]
    matches: str
    bytes: str
    text: str


_DUCKDB = _Dialect(
    quote='"',
    literal=lambda text: "'" + text.replace("'", "''") + "'",
    matches="regexp_matches(line, {})",
    bytes="strlen(line)",
    text="string_agg(line, chr(10) ORDER BY n)",
)
_SPARK = _Dialect(
    quote="`",
    # The session decides whether a backslash in a literal stands for itself, and Spark does not
    # bind parameters in the queries below.
    literal=lambda text: f"CAST(X'{text.encode().hex()}' AS STRING)",
    matches="line RLIKE {}",
    bytes="octet_length(line)",
    text="listagg(line, chr(10)) WITHIN GROUP (ORDER BY n)",
)


def events(
    lines: DataFrame,
    *presets: str,
    begin: str | None = None,
    limits: Limits = LIMITS,
) -> DataFrame:
    """Return the events of *lines* with the columns `COLUMNS`, `text` and `lines`. *lines* is a
    table of this pipeline, or a batch that the data source `jetstream` read. The *presets* join
    them (all presets, if none is given), or an expression of your own (in Java's syntax): an event
    begins at each line in which it finds a match.

    Raises:
        ValueError: one of *presets* does not exist.
        Refused: the lines are a stream without an end.
    """
    if lines.isStreaming:
        raise Refused(
            "A stream never ends, so no event in it is ever complete: read it with spark.read, or "
            "call events within foreachBatch, where the end of a batch ends its events."
        )
    query = _query("{lines}", chosen(presets, begin), _SPARK, limits)
    return lines.sparkSession.sql(query, lines=lines)


def duckdb_query(relation: str, rules: Sequence[Rules], limits: Limits = LIMITS) -> str:
    """Return DuckDB's query for the events of the lines in *relation*, with the columns of
    `events`.
    """
    return _query(relation, rules, _DUCKDB, limits)


def _query(relation: str, rules: Sequence[Rules], dialect: _Dialect, limits: Limits) -> str:
    def name(column: str) -> str:
        return f"{dialect.quote}{column}{dialect.quote}"

    columns = ", ".join(map(name, COLUMNS))
    by = f"PARTITION BY {', '.join(_KEYS)} ORDER BY"
    # The offset is the place in the file, also for lines that were sent again later.
    order = f"{name('offset')} NULLS LAST, stream, incarnation, seq, idx"
    kinds = [f"{_kind(each, dialect)} AS kind_{i}" for i, each in enumerate(rules)]
    formers = [
        f"lag(kind_{i}, {back}) OVER ({by} n) AS before_{i}_{back}"
        for i in range(len(rules))
        for back in (1, 2)
    ]
    joins = [f"coalesce({_joins(each, i)}, false) AS joins_{i}" for i, each in enumerate(rules)]
    upto = f"OVER ({by} n ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    before = f"OVER ({by} n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    continues = " OR ".join(_continues(each, i, before, upto) for i, each in enumerate(rules))
    first = [
        f"{name(c)}" if c in _KEYS else f"max({name(c)}) FILTER (WHERE n = first_n) AS {name(c)}"
        for c in COLUMNS
        if c != "level"
    ]
    return f"""
WITH placed AS (SELECT {columns}, line, {_MESSAGE} AS message FROM {relation}),
numbered AS (
  SELECT *, row_number() OVER ({by} {order}) AS n, {dialect.bytes} + 1 AS size, {", ".join(kinds)}
  FROM placed),
looked AS (SELECT *, {", ".join(formers)} FROM numbered),
paired AS (SELECT *, {", ".join(joins)} FROM looked),
decided AS (
  SELECT {columns}, line, message, n, size, {continues} AS continues,
    coalesce(sum(size) {before}, 0) AS total
  FROM paired),
measured AS (
  SELECT *, n - max(CASE WHEN NOT continues THEN n END) {upto} AS event_lines,
    total - max(CASE WHEN NOT continues THEN total END) {upto} AS event_bytes,
    lag(size) OVER ({by} n) AS former
  FROM decided),
cut AS (
  SELECT *, CASE WHEN NOT continues OR event_lines % {limits.lines} = 0
    OR floor(event_bytes / {limits.bytes}) > floor((event_bytes - former) / {limits.bytes})
    THEN n END AS begins
  FROM measured),
grouped AS (SELECT *, max(begins) {upto} AS first_n FROM cut)
SELECT {", ".join(first)}, min_by(level, n) FILTER (WHERE level IS NOT NULL) AS level,
  {dialect.text} AS text, count(*) AS lines
FROM grouped GROUP BY {", ".join(_KEYS)}, first_n
"""


def _kind(rules: Rules, dialect: _Dialect) -> str:
    cases = (
        f"WHEN {dialect.matches.format(dialect.literal(pattern))} THEN '{kind}'"
        for kind, pattern in rules.kinds
    )
    return f"CASE {' '.join(cases)} ELSE '{OTHER}' END"


def _joins(rules: Rules, i: int) -> str:
    return " OR ".join(_join(join, i) for join in rules.joins)


def _join(join: Join, i: int) -> str:
    ways = []
    if join.after:
        ways.append(f"before_{i}_1 IN ({_texts(join.after)})")
    if join.over_blank:
        ways.append(f"(before_{i}_1 = '{BLANK}' AND before_{i}_2 IN ({_texts(join.over_blank)}))")
    return f"(kind_{i} = '{join.kind}' AND ({' OR '.join(ways)}))"


def _continues(rules: Rules, i: int, before: str, upto: str) -> str:
    """Return the SQL condition that a line joins the one before it, and that their event was begun
    by more than a closed kind.
    """
    is_open = f"kind_{i} NOT IN ({_texts(rules.closed)})" if rules.closed else "true"
    return (
        f"(joins_{i} AND coalesce(max(CASE WHEN {is_open} THEN n END) {before}, 0)"
        f" >= max(CASE WHEN NOT joins_{i} THEN n END) {upto})"
    )


def _texts(kinds: Sequence[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)
