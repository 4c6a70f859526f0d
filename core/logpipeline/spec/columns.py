"""The part of the resource about columns of a table: what of a line's own text becomes one, and
which time a line is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from logpipeline.spec.fields import spec

FieldType = Literal["string", "int", "float", "bool", "timestamp"]
TimeFormat = Literal[
    "auto",
    "iso8601",
    "rfc3164",
    "rfc5424",
    "klog",
    "common",
    "epochS",
    "epochMs",
    "epochUs",
    "epochNs",
]
# The API server bounds what a rule about all pairs of fields may cost.
RULES_MAX = 16
FIELDS_MAX = 24
# Small letters alone: DuckDB, Spark and Iceberg take `Status` and `status` for the same column.
COLUMN = r"^[a-z][a-z0-9_]{0,62}$"
# A name of the time-zone database, or a fixed distance from UTC.
ZONE = r"^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}|[+-][0-9]{2}:[0-9]{2})$"
PATTERN_CHARS_MAX = 1024
# The columns that every table has, those that parsing adds, and the folders of its files.
RESERVED = (
    *("stream", "incarnation", "seq", "idx", "ts", "event_ts", "partition", "cluster", "host"),
    *("namespace", "pod", "container", "fd", "level", "line", "piece", "source", "generation"),
    *("offset", "resent", "raw", "fields", "parsed", "dt", "hour"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSelector:
    """Whose lines: all that is given must fit, and of each list one name. `*` and `?` are
    wildcards, also for `/`.
    """

    namespaces: tuple[str, ...] = spec(
        "Namespaces of pods.", default=(), min_length=1, max_length=253, max_items=64
    )
    pods: tuple[str, ...] = spec(
        "Names of pods.", default=(), min_length=1, max_length=253, max_items=64
    )
    containers: tuple[str, ...] = spec(
        "Names of containers.", default=(), min_length=1, max_length=253, max_items=64
    )
    hosts: tuple[str, ...] = spec("Hosts.", default=(), min_length=1, max_length=253, max_items=64)
    sources: tuple[str, ...] = spec(
        "Sources, which of plain files are their paths.",
        default=(), min_length=1, max_length=1024, max_items=64,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LineField:
    """One value of a line that has a column of its own."""

    name: str = spec("Name of the column.", pattern=COLUMN, max_length=63, example="status")
    from_: str | None = spec(
        "Key in the line, by default the name; of JSON also a path: a.b is b in a, where there is "
        "no key a.b.",
        default=None, min_length=1, max_length=253, example="http.status",
    )  # fmt: skip
    type: FieldType = spec("Type of the column.", default="string")

    @property
    def key(self) -> str:
        """Return where the value stands in the line."""
        return self.from_ or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRule:
    """How lines of some sources are read."""

    select: LineSelector = spec("Whose lines; by default all.", factory=LineSelector)
    format: Literal["json", "logfmt", "regex"] = spec("What the lines are.")
    pattern: str | None = spec(
        "With regex: an expression of RE2 whose named groups are the values; it is searched "
        "for, so write ^ and $ where they are meant.",
        default=None, min_length=1, max_length=PATTERN_CHARS_MAX,
        example=r"^(?P<method>\S+) (?P<path>\S+) (?P<status>\d+)$",
    )  # fmt: skip
    fields: tuple[LineField, ...] = spec(
        "Values with a column of their own; all others stand together in the column `fields`.",
        default=(), max_items=FIELDS_MAX, unique_by="name",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """One way to find the time of a line."""

    format: TimeFormat = spec(
        "How times are written; auto knows all, and tells units of numbers by their size.",
        default="auto",
    )
    pattern: str | None = spec(
        "How they are written, as strptime has it, in place of format.",
        default=None, min_length=2, max_length=253, example="%d.%m.%Y %H:%M:%S",
    )  # fmt: skip
    field: str | None = spec(
        "The declared field that holds it; by default the first 256 bytes of the line.",
        default=None, pattern=COLUMN, max_length=63, example="time",
    )  # fmt: skip
