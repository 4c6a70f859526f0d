"""The columns of a line, and those that a user declares. Tables, readers and queries rely on them
for years: columns may be added, never renamed or given another type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.spec.table import LineField, ParseRule, Table, TimeRule
from logpipeline_spark.errors import Refused

TIME = pa.timestamp("us", tz="UTC")
UNDECODABLE = "undecodable"

LINES = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("seq", pa.int64()),
        ("idx", pa.int32()),
        ("ts", TIME),
        ("event_ts", TIME),
        ("partition", pa.int32()),
        ("cluster", pa.string()),
        ("host", pa.string()),
        ("namespace", pa.string()),
        ("pod", pa.string()),
        ("container", pa.string()),
        ("fd", pa.string()),
        ("level", pa.string()),
        ("line", pa.string()),
        ("piece", pa.string()),
        ("source", pa.string()),
        ("generation", pa.string()),
        ("offset", pa.int64()),
        ("resent", pa.bool_()),
        # The exact bytes of a line that is not valid text; null for all other lines.
        ("raw", pa.binary()),
    ]
)

# What no two lines of a table share.
KEY = ("stream", "incarnation", "seq", "idx")
# An incarnation of a stream, whose sequences can be compared.
LIFE = KEY[:2]

# Columns of few values. As dictionaries, no value is copied or hashed for each line.
FEW_VALUES = (
    "stream",
    "incarnation",
    "cluster",
    "host",
    "namespace",
    "pod",
    "container",
    "fd",
    "level",
    "source",
    "generation",
)


def encoded(schema: pa.Schema) -> pa.Schema:
    """Return *schema* with columns of few values as dictionaries."""
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [field.with_type(kind) if field.name in FEW_VALUES else field for field in schema]
    )


LINES_ENCODED = encoded(LINES)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of messages: the stream, its incarnation, and the form of its subjects."""

    stream: str
    incarnation: str
    root: str
    partitions: int


FIELDS, PARSED = "fields", "parsed"
NO_RULE = -1
TYPES = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns that a user declares: *rules* to parse lines, of which the first that fits a line
    applies; *times* of lines, of which the first that is found applies; and the *zone* of times
    that name none.
    """

    rules: tuple[ParseRule, ...] = ()
    times: tuple[TimeRule, ...] = ()
    zone: str = "UTC"

    @staticmethod
    def of(table: Table) -> Columns:
        """Return the columns of a resource.

        Raises:
            Refused: RE2 does not accept an expression.
        """
        for rule in table.parse:
            if rule.pattern is not None:
                _check(rule.pattern)
        return Columns(rules=table.parse, times=table.time, zone=table.zone)

    @property
    def declared(self) -> dict[str, LineField]:
        """The fields with their own column, by name."""
        return {field.name: field for rule in reversed(self.rules) for field in rule.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of declared columns, in the order in which rules first name them."""
        return tuple(dict.fromkeys(field.name for rule in self.rules for field in rule.fields))


NONE = Columns()


def schema_of(columns: Columns) -> pa.Schema:
    """Return the columns of a table as readers see them."""
    return _with(LINES, columns)


def encoded_schema_of(columns: Columns) -> pa.Schema:
    """Return the columns of a table as writers have them."""
    return _with(LINES_ENCODED, columns)


def _with(base: pa.Schema, columns: Columns) -> pa.Schema:
    if not columns.rules:
        return base
    declared = columns.declared
    own = [pa.field(name, TYPES[declared[name].type]) for name in columns.names]
    return pa.schema([*base, *own, pa.field(FIELDS, pa.string()), pa.field(PARSED, pa.bool_())])


def _check(pattern: str) -> None:
    empty: Any = pa.array([], pa.string())
    try:
        pc.extract_regex(empty, pattern)
    except pa.ArrowInvalid as error:
        raise Refused(
            f"table.parse: RE2 does not accept the pattern {pattern!r}: {error}"
        ) from None
