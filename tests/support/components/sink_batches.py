"""Batches as a reader hands them out, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from logpipeline.consuming.message import Batch, Message
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch as Headers
from logpipeline.wire import encode_headers

CREATED = "2026-11-25T10:00:00.123456789Z"
STORED_NS = 1_795_600_000_000_000_000
_SUBJECTS = Subjects("logs", 8)


def message(sequence: int, data: bytes, *, form: str = "plain", host: str = "node-a") -> Message:
    """Return the stored message that holds *data* of a file, or of a container's log (cri)."""
    headers = Headers(
        source="shop/web/1/app/0" if form == "cri" else "/var/log/app.log",
        generation="0123456789abcdef",
        start=0,
        end=len(data),
        lines=max(1, data.count(b"\n")),
        format="cri" if form == "cri" else "plain",
    )
    fields = encode_headers(headers, "id").items()
    block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
    raw = RawMessage(f"logs.p7.{host}".encode(), b"", block, data)
    stored_ns = STORED_NS + sequence * 1_000_000
    return Message(_SUBJECTS, "LOGS_7", 7, Delivered(raw, sequence, 1, stored_ns, 0))


def batch_of(messages: Sequence[Message], *, created: str = CREATED) -> Batch:
    """Return a batch of *messages* of the stream that was *created* then."""
    return Batch(messages, created=created, may_repeat=False, tries=0)


def plain_batch(*texts: bytes, first: int = 1, created: str = CREATED) -> Batch:
    """Return a batch of one message for each of *texts*."""
    made = [message(first + number, text + b"\n") for number, text in enumerate(texts)]
    return batch_of(made, created=created)
