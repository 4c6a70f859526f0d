"""Messages as streams hold them, for tests of what becomes of them in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import zstandard

from logpipeline.wire import Batch, encode_headers
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Message, groups
from logpipeline_spark.lines.schema import LINES, Origin

HOST = "node-b"
ORIGIN = Origin("LOGS_6", "18a1f3c2d4e5f607r0", "logs", 10)
SUBJECT = "logs.p6.node-b"
TIME_NS = 1_800_000_000_123_456_789


def batch_for(data: bytes, start: int = 0, **changes: Any) -> Batch:
    """Return the headers of a message with *data*."""
    batch = Batch(
        source="default/web-1/uid/app/0",
        generation="0123456789abcdef",
        start=start,
        end=start + len(data),
        lines=data.count(b"\n"),
        format="cri",
        cluster="c1",
        namespace="default",
        pod="web-1",
        container="app",
    )
    return replace(batch, **changes)


def message(
    data: bytes, sequence: int = 1, start: int = 0, subject: str = SUBJECT, **changes: Any
) -> Message:
    """Return a message of ours with *data*; *changes* are of its headers."""
    batch = batch_for(data, start, **changes)
    payload = zstandard.compress(data) if batch.compressed else data
    return Message(sequence, TIME_NS, subject, block(encode_headers(batch, "id")), payload)


def lines_of(messages: Sequence[Message], origin: Origin) -> pa.Table:
    """Return the lines of *messages*, which rise in sequence, as one table of `LINES`."""
    tables = [table for group in groups(messages, origin) for table in tables_of(group, origin)]
    return pa.concat_tables(tables).cast(LINES) if tables else LINES.empty_table()


def foreign(data: bytes, sequence: int = 1, subject: str = SUBJECT) -> Message:
    """Return a message without our headers."""
    return Message(sequence, TIME_NS, subject, b"", data)


def block(headers: dict[str, str]) -> bytes:
    """Return *headers* as they stand on the wire."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()
