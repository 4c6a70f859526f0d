"""Batches as a reader hands them out, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from logpipeline.consuming.message import Batch, Message
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import BATCH_BYTES_MAX, encode_headers
from logpipeline.wire import Batch as Headers

CREATED = "2026-11-25T10:00:00.123456789Z"
GENERATION = "0123456789abcdef"
STORED_NS = 1_795_600_000_000_000_000
_SUBJECTS = Subjects("logs", 8)


def message(
    sequence: int,
    data: bytes,
    *,
    form: str = "plain",
    host: str = "node-a",
    start: int | None = None,
    generation: str = GENERATION,
) -> Message:
    """Return the stored message that holds *data* of a file, or of a container's log (cri), from
    *start* on. By itself it stands behind those with lower sequences.
    """
    start = sequence * BATCH_BYTES_MAX if start is None else start
    headers = Headers(
        source="shop/web/1/app/0" if form == "cri" else "/var/log/app.log",
        generation=generation,
        start=start,
        end=start + len(data),
        lines=max(1, data.count(b"\n")),
        format="cri" if form == "cri" else "plain",
    )
    fields = encode_headers(headers, "id").items()
    block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
    return _stored(sequence, host, block, data)


def foreign(sequence: int, data: bytes, *, host: str = "node-a") -> Message:
    """Return a stored message of a program that knows no headers of ours."""
    return _stored(sequence, host, b"", data)


def _stored(sequence: int, host: str, block: bytes, data: bytes) -> Message:
    raw = RawMessage(f"logs.p7.{host}".encode(), b"", block, data)
    stored_ns = STORED_NS + sequence * 1_000_000
    return Message(_SUBJECTS, "LOGS_7", 7, Delivered(raw, sequence, 1, stored_ns, 0))


def batch_of(messages: Sequence[Message], *, created: str = CREATED) -> Batch:
    """Return a batch of *messages* of the stream that was *created* then."""
    return Batch(messages, created=created, may_repeat=False, tries=0)


def plain_batch(*texts: bytes, first: int = 1, created: str = CREATED) -> Batch:
    """Return a batch of one message for each of *texts*. A stream that was *created* at another
    time holds other files' lines.
    """
    generation = GENERATION if created == CREATED else GENERATION[::-1]
    made = [
        message(first + number, text + b"\n", generation=generation)
        for number, text in enumerate(texts)
    ]
    return batch_of(made, created=created)
