"""What a chain hands out: the bytes to send next, cut where a message may end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from logpipeline import cri
from logpipeline.wire import Checksums, Previous
from logpipeline_shipper.files.listing import Format

# Why bytes that stood in a file were never read.
ROTATED = "rotated"  # the file was gone before its turn came
DELETED = "deleted"  # the file was deleted, and held open for as long as the limits allow
DAMAGED = "damaged"  # what a compressed file holds cannot be unpacked


class Lost(NamedTuple):
    """Bytes of a generation that stood in a file, are gone, and were not sent; shipping of it began
    at *begin*. There may have been more.
    """

    generation: str
    begin: int
    start: int
    end: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The bytes ``[start, end)`` of a generation.

    They end with a line unless *ends_inside_line*; the one exception is the last line of a file
    that ended without a newline, which *lines* counts as a line. *checksums* are the generation's
    before the first of them and after the last. *begins* says that the source is read from here on,
    and what lies before is left out on purpose.
    """

    generation: str
    start: int
    end: int
    data: bytes
    lines: int
    first_time_ns: int
    last_time_ns: int
    previous: Previous | None
    checksums: Checksums
    starts_inside_line: bool
    ends_inside_line: bool
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The first *length* bytes may be sent; 0 means that nothing is complete yet.

    *inside_line* says that the line, or the run of fragments, goes on behind them; *forced* that
    it is too long to wait for its end.
    """

    length: int
    inside_line: bool = False
    forced: bool = False


def cut(data: bytes, format: Format, *, line_bytes_max: int, closed: bool) -> Cut:
    """Decide how much of *data* can be sent.

    *closed* says that *data* reaches to the end of a file that does not grow any more.
    """
    length = last_cut(data, format)
    if length:
        return Cut(length)
    if len(data) >= line_bytes_max:
        # A run of fragments is cut between two of them, so that each stays a line of its format.
        whole = data.rfind(b"\n", 0, line_bytes_max) + 1 if format == "cri" else 0
        return Cut(whole or line_bytes_max, inside_line=True, forced=True)
    if closed and data:
        return Cut(len(data), inside_line=format == "cri" and bool(open_streams(data)))
    return Cut(0)


def last_cut(data: bytes, format: Format) -> int:
    """Return where the last whole line, or run of fragments, of *data* ends; 0 where none does."""
    return cri.last_cut(data) if format == "cri" else data.rfind(b"\n") + 1


def open_streams(data: bytes) -> set[bytes]:
    """Return the streams of the CRI lines *data* whose last fragment is still to come."""
    streams: set[bytes] = set()
    for line in data.split(b"\n"):
        fields = line[:64].split(b" ", 3)
        if len(fields) < 3:
            continue
        if fields[2] == b"P":
            streams.add(fields[1])
        else:
            streams.discard(fields[1])
    return streams


def times_of(data: bytes, format: Format) -> tuple[int, int]:
    """Return the times of the first and of the last CRI line in nanoseconds; 0 where there is
    none.
    """
    if format != "cri":
        return 0, 0
    last = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    return cri.time_ns(data[:40]), cri.time_ns(data[last : last + 40])


class ReadCounters:
    """Counted since the start of the process."""

    def __init__(self) -> None:
        self.missing_bytes = 0  # were in a file, and are gone unread
        self.unseen_generations = (
            0  # files that vanished before their end was seen: at least so many
        )
        self.restarts = 0  # another file stood where the known one was expected
        self.truncations = 0  # a file shrank, or was cut and written again
        self.hole_bytes = 0  # NULs that stood before the first line, where a file was truncated
        self.long_lines = 0  # lines and runs of fragments that were cut for their length
        self.unreadable: Counter[str] = Counter()  # by reason; each file once per failure
