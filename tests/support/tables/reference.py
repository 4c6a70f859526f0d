"""Lines of messages, one by one in plain Python: slow and obvious, to compare the columns with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from logpipeline import cri
from logpipeline.wire import Batch, decode_headers, decode_payload, parse_headers
from logpipeline_spark.lines.levels import level_of
from logpipeline_spark.lines.messages import Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARED = ("seq", "idx", "event_ts", "fd", "level", "line", "raw", "offset", "source")


def rows_of(messages: list[Message]) -> list[dict[str, Any]]:
    """Return the compared columns of each line of *messages*, none of which is cut or broken."""
    return [
        {"seq": message.sequence, "idx": idx, **row}
        for message in messages
        for idx, row in enumerate(_rows(message))
    ]


def _rows(message: Message) -> Iterator[dict[str, Any]]:
    batch = decode_headers(parse_headers(message.headers)) if message.headers else None
    if batch is None:
        for line in message.data.split(b"\n"):
            yield _row(line, None, None)
        return
    data = decode_payload(batch, message.data)
    if batch.format == "cri":
        # How fragments are joined is the core's to say; their offsets are checked apart.
        yield from (_cri_row(line, batch) for line in cri.join(data))
        return
    offset = batch.start
    for line in data.split(b"\n")[: -1 if data.endswith(b"\n") else None]:
        yield _row(line, offset, batch)
        offset += len(line) + 1


def _cri_row(line: cri.CriLine, batch: Batch) -> dict[str, Any]:
    row = _row(line.text, None, batch)
    time = cri.time_ns(line.time) if line.time else 0
    row["event_ts"] = EPOCH + timedelta(microseconds=time // 1000) if time else None
    row["fd"] = line.stream.decode() or None
    return row


def _row(line: bytes, offset: int | None, batch: Batch | None) -> dict[str, Any]:
    text = line.decode("utf-8", "replace")
    return {
        "event_ts": None,
        "fd": None,
        "level": level_of(line),
        "line": text,
        # Whoever wants the very bytes finds them in one of the two.
        "raw": None if text.encode() == line else line,
        "offset": offset,
        "source": batch.source if batch else None,
    }
