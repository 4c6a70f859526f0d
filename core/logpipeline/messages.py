"""Host and batch of a stored message, from its subject and headers."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.nats.pull import Delivered
from logpipeline.subjects import BadHost, BadSubject, Subjects
from logpipeline.wire import BadMessage, Batch, decode_headers, parse_headers, whole_number

# nats-server adds it, last, for a reader of headers alone: the size of the payload.
_SIZE = b"\r\nNats-Msg-Size:"


@dataclass(frozen=True, slots=True)
class Read:
    """A message whose subject and headers are valid; *batch* is None without our headers."""

    host: str
    batch: Batch | None
    fields: dict[str, str]


def read_message(subjects: Subjects, partition: int, delivered: Delivered) -> Read:
    """Return host and headers of a message of *partition*.

    Raises:
        BadMessage: its subject or headers cannot be; the error's reason says which.
    """
    message = delivered.message
    try:
        named, host = subjects.read(message.subject.decode("utf-8", "surrogateescape"))
    except BadHost as error:
        raise BadMessage("bad-host", str(error)) from error
    except BadSubject as error:
        raise BadMessage("bad-subject", str(error)) from error
    # A shipper that counts other partitions than we do stands in the stream of the remainder.
    if named % max(subjects.partitions, 1) != partition:
        raise BadMessage("bad-subject", f"partition {named} in the stream of {partition}")
    fields = parse_headers(message.headers) if message.headers else {}
    return Read(host, decode_headers(fields) if fields else None, fields)


def payload_bytes(headers: bytes) -> int | None:
    """Return how long the payload is of a message that was read without it, from its block of
    *headers*; None where the server does not say.
    """
    # A publisher may have written the same header, which then stands before the server's.
    text = headers.rpartition(_SIZE)[2].partition(b"\r\n")[0]
    return whole_number(text.decode("utf-8", "replace").strip())


def has_its_size(batch: Batch, headers: bytes) -> bool:
    """Return whether a message that was read without its payload can be what its *headers*, which
    describe *batch*, say.
    """
    # A range that its payload contradicts was not written, so it must not count as known. Of a
    # compressed payload the size says nothing.
    size = payload_bytes(headers)
    expected = 0 if batch.lost else batch.end - batch.start
    return batch.compressed or size is None or size == expected
