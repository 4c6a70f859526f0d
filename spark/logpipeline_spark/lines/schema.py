"""The columns of a line. Tables, readers and queries of years to come rely on them: columns may be
added, never renamed or given another type.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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
        # The line's very bytes, where they are no text; null for all other lines.
        ("raw", pa.binary()),
    ]
)

# Columns of few values. Where a writer takes them as dictionaries, no value is copied or hashed
# for each line.
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
    """Where messages come from: the stream, which of its lives, and how its subjects are made."""

    stream: str
    incarnation: str
    root: str
    partitions: int
