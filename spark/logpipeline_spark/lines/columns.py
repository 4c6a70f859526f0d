"""Which columns a table has beside those of every table, and whose lines fill them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.spec.table import LineField, LineSelector, ParseRule, Table, TimeRule
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.opening import Opened
from logpipeline_spark.lines.schema import LINES, LINES_ENCODED, TIME

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
    """What people ask for: *rules* by which lines are read, the first that fits a line; *times* of
    lines, the first that is found; and the *zone* of times that name none.
    """

    rules: tuple[ParseRule, ...] = ()
    times: tuple[TimeRule, ...] = ()
    zone: str = "UTC"

    @staticmethod
    def of(table: Table) -> Columns:
        """Return what a resource asks for.

        Raises:
            Refused: an expression is none that RE2 knows.
        """
        for rule in table.parse:
            if rule.pattern is not None:
                _check(rule.pattern)
        return Columns(rules=table.parse, times=table.time, zone=table.zone)

    @property
    def declared(self) -> dict[str, LineField]:
        """Return the fields with a column of their own, by their names."""
        return {field.name: field for rule in reversed(self.rules) for field in rule.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of declared columns, in the order in which rules name them first."""
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


def rules_of(group: Sequence[Opened], columns: Columns) -> npt.NDArray[np.int64]:
    """Return the number of the rule for the lines of each message of *group*, or NO_RULE."""
    return np.array([_rule(_names(opened), columns.rules) for opened in group], np.int64)


_Names = tuple[str, str, str, str, str]


def _names(opened: Opened) -> _Names | None:
    if opened.reason:
        return None
    batch, host = opened.batch, opened.host or ""
    if batch is None:
        return ("", "", "", host, "")
    return (batch.namespace or "", batch.pod or "", batch.container or "", host, batch.source)


@lru_cache(maxsize=4096)
def _rule(names: _Names | None, rules: tuple[ParseRule, ...]) -> int:
    if names is None:
        # What cannot be believed is no line of any format.
        return NO_RULE
    fitting = (number for number, rule in enumerate(rules) if _fits(names, rule.select))
    return next(fitting, NO_RULE)


def _fits(names: _Names, select: LineSelector) -> bool:
    wanted = (select.namespaces, select.pods, select.containers, select.hosts, select.sources)
    return all(
        not globs or any(_glob(glob).match(name) for glob in globs)
        for name, globs in zip(names, wanted, strict=True)
    )


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


def _check(pattern: str) -> None:
    empty: Any = pa.array([], pa.string())
    try:
        pc.extract_regex(empty, pattern)
    except pa.ArrowInvalid as error:
        raise Refused(f"table.parse: the pattern {pattern!r} cannot be used: {error}") from None
