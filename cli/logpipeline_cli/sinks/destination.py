"""The contract between the command `sink`, which reads the streams, and the systems that it writes
to.

The reader hands a batch out again, message by message the same, when it is not known whether it was
written. So a destination writes it under a name that the batch always has (`name_of`), or each line
under one that the line always has (`line_names`), and the system behind it recognises the second
time.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from logpipeline import cri
from logpipeline.consuming.message import Batch, Message
from logpipeline.nats.jetstream import time_ns_of
from logpipeline.wire import source_key
from logpipeline_cli.errors import CliError

T = TypeVar("T")

# A request has so many bytes, unless one line alone has more. It is no option: parts of a batch
# that comes again must be those of the first time. Elasticsearch takes 100 MB, Loki 4 MiB.
REQUEST_BYTES_MAX = 4 * 2**20


class TryAgain(Exception):
    """The batch may be written later, not before *after_s* seconds."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Refused(Exception):
    """The system does not take this batch, however often it is tried."""


class Misdirected(CliError):
    """The address, the login or the system's configuration is wrong. No message is to blame, so
    that none becomes a dead letter: the sink ends.
    """


class Destination(Protocol):
    """A system that lines are copied to. One task uses it, one batch at a time."""

    async def open(self) -> None:
        """Check what can be checked before the first batch.

        Raises:
            Misdirected: it cannot be written to as it is.
            TryAgain: it is away, and may be opened later.
        """

    async def write(self, batch: Batch) -> None:
        """Write the lines of *batch*, durably, and return when they are there.

        Raises:
            TryAgain, Refused, Misdirected: they are not, or it is not known.
            BadMessage: a message cannot be decoded.
        """

    async def close(self) -> None:
        """Let connections go."""


def name_of(batch: Batch) -> str:
    """Return the name of *batch*, which no other one has: that of its stream, the first and the
    last sequence, and when the stream was made, since a new stream counts from 1 again.
    """
    return f"{batch.id}-{created_of(batch)}"


def created_of(batch: Batch) -> str:
    """Return when the batch's stream was made, in nanoseconds since 1970, as hexadecimal digits."""
    return f"{time_ns_of(batch.created):x}"


def line_names(message: Message, created: str) -> list[str]:
    """Return a name for each line of *message* of the stream that was *created* then, which no
    other line has.

    A line is named by what it is: its host and source as 32 hexadecimal digits, the generation,
    from where to where it reaches there, in bytes, and a hash of its text. So it has this name also
    where its bytes are stored anew, as `dlq retry` and a shipper do, and in whatever pieces.
    Without our headers a line is named by its stream, its message's sequence, and its place in the
    message.

    Raises:
        BadMessage: it cannot be decoded.
    """
    batch = message.read.batch
    if batch is None:
        name = f"{message.stream}-{created}-{message.sequence}"
        return [f"{name}-{number}" for number in range(len(message.lines))]
    # A path may be longer than an id may be. A generation's own name is random, and never used
    # again: neither the stream nor the installation has to stand beside it.
    name = f"{source_key('', message.host, batch.source)}-{batch.generation}"
    # Its end, too: the beginning of a line that goes on in another message is not the whole line.
    # And its text: whoever else may publish for the host could have others taken for known ones.
    return [
        f"{name}-{start}-{end}-{hashlib.blake2b(line.text, digest_size=8).hexdigest()}"
        for line, (start, end) in zip(
            message.lines, _spans(message, batch.format == "cri"), strict=True
        )
    ]


def _spans(message: Message, is_cri: bool) -> Iterator[tuple[int, int]]:
    """Yield from where to where in its source each of `message.lines` reaches."""
    assert message.start is not None
    data = message.data
    held = message.parts or [(message.start, message.start + len(data))]

    def offset(position: int) -> int:
        for start, end in held:
            if position < end - start:
                return start + position
            position -= end - start
        raise IndexError(position)

    rows = _rows(data)
    # Text may look like a fragment's tag: then the long way only takes longer.
    for begin, end in _joined(data, rows) if is_cri and b" P" in data else rows:
        yield offset(begin), offset(end - 1) + 1


def _rows(data: bytes) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin) + 1 or len(data)
        yield begin, end
        begin = end


def _joined(data: bytes, rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines of *rows* in the order of `cri.join`, those in fragments as a whole."""
    runs: dict[bytes, tuple[int, int]] = {}
    for begin, end in rows:
        (line,) = cri.join(data[begin:end])
        first, _ = runs.get(line.stream, (begin, end))
        if line.whole:
            runs.pop(line.stream, None)
            yield first, end
        else:
            runs[line.stream] = (first, end)
    yield from runs.values()


def parts(items: Iterable[T], size_of: Callable[[T, T | None], int]) -> Iterator[list[T]]:
    """Yield *items* in order, in parts of at most `REQUEST_BYTES_MAX` bytes; a larger item is a
    part by itself. The same items always give the same parts.

    *size_of* is given an item and the one before it in its part, and returns by how many bytes the
    item makes the request longer, as it is sent.
    """
    part: list[T] = []
    size = 0
    for item in items:
        more = size_of(item, part[-1] if part else None)
        if part and size + more > REQUEST_BYTES_MAX:
            yield part
            part, size = [], 0
            more = size_of(item, None)
        part.append(item)
        size += more
    if part:
        yield part


def part_name(name: str, number: int) -> str:
    """Return the name of a part of the batch *name*, which for most batches is the only one."""
    return f"{name}.{number}" if number else name


def readable(text: bytes) -> tuple[str, str]:
    """Return *text* for JSON, which has no bytes that are not UTF-8, and its exact bytes in base64
    if it has such ones, else an empty text.
    """
    try:
        return text.decode(), ""
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace"), base64.b64encode(text).decode()
