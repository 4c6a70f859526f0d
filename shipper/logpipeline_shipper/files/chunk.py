"""Chunks: the next bytes of a chain, cut where a message may end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from logpipeline import cri
from logpipeline.checksum import Checksum
from logpipeline.wire import Checksums, Previous
from logpipeline_shipper.files.listing import Format

# Why bytes that were in a file were never read.
ROTATED = "rotated"  # the file was gone before it was read
DELETED = "deleted"  # the file was deleted, and was kept open as long as the limits allow
DAMAGED = "damaged"  # a packed file cannot be unpacked


class Lost(NamedTuple):
    """Bytes of a generation that were in a file, are gone, and were not sent; shipping of the
    generation began at *begin*. There may have been further bytes.
    """

    generation: str
    begin: int
    start: int
    end: int
    cause: str


class InFile(NamedTuple):
    """The bytes of a chunk as they stand in the file, and the file's checksums around them."""

    data: bytes
    checksums: Checksums

    @staticmethod
    def around(data: bytes, before: Checksum) -> InFile:
        """Return *data*, with the checksum *before* it and the one after it."""
        return InFile(data, Checksums.around(data, before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The bytes ``[start, end)`` of a generation, as they are sent.

    They end with a line unless *ends_inside_line*; the one exception is the last line of a file
    that ended without a newline, which *lines* counts as a line. *checksums* are those of the
    generation before the first byte and after the last. *begins*: shipping begins here, and the
    bytes before are left out on purpose. *unredacted* is given where the file has other bytes, here
    or before.
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
    unredacted: InFile | None = None

    @property
    def in_file(self) -> InFile:
        """The bytes as they stand in the file."""
        return self.unredacted or InFile(self.data, self.checksums)


@dataclass(frozen=True, slots=True)
class Cut:
    """The first *length* bytes may be sent; 0 means that no line is complete yet.

    *inside_line*: the line, or the run of fragments, continues after them; *forced*: it is too long
    to wait for its end.
    """

    length: int
    inside_line: bool = False
    forced: bool = False


def cut(data: bytes, format: Format, *, line_bytes_max: int, closed: bool) -> Cut:
    """Decide how much of *data* can be sent.

    *closed*: *data* reaches to the end of a file that does not grow any more.
    """
    length = last_cut(data, format)
    if length:
        return Cut(length)
    if len(data) >= line_bytes_max:
        # A run of fragments is cut between two of them, so that each remains a valid line.
        whole = data.rfind(b"\n", 0, line_bytes_max) + 1 if format == "cri" else 0
        return Cut(whole or line_bytes_max, inside_line=True, forced=True)
    if closed and data:
        return Cut(len(data), inside_line=format == "cri" and bool(open_streams(data)))
    return Cut(0)


def last_cut(data: bytes, format: Format) -> int:
    """Return the end of the last whole line, or run of fragments, in *data*; 0 if none ends."""
    return cri.last_cut(data) if format == "cri" else data.rfind(b"\n") + 1


def open_streams(data: bytes) -> set[bytes]:
    """Return the streams in the CRI lines *data* whose last fragment is missing."""
    streams: set[bytes] = set()
    for line in data.split(b"\n"):
        fields = line[:64].split(b" ", 3)
        if len(fields) < 3:
            continue
        if cri.is_fragment(fields[2]):
            streams.add(fields[1])
        else:
            streams.discard(fields[1])
    return streams


def times_of(data: bytes, format: Format) -> tuple[int, int]:
    """Return the times of the first and of the last CRI line in nanoseconds; 0 if there is none."""
    if format != "cri":
        return 0, 0
    last = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    return cri.time_ns(data[:40]), cri.time_ns(data[last : last + 40])


class ReadCounters:
    """Counters of one chain since the start of the process, and the losses to be reported."""

    def __init__(self) -> None:
        self.missing_bytes = 0  # were in a file, and are gone unread
        self.unseen_generations = 0  # files gone before their end was seen: at least so many
        self.restarts = 0  # another file was at the path of the known one
        self.truncations = 0  # a file was truncated, maybe written again since
        self.hole_bytes = 0  # NULs before the first line, left by a truncation
        self.long_lines = 0  # lines and runs of fragments that were cut because of their length
        self.unreadable: Counter[str] = Counter()  # by reason; each file once per failure
        self._losses: list[Lost] = []

    def name_lost(self, lost: Lost) -> None:
        """Note that the bytes of *lost*, if there are any, were in a file and are gone unread."""
        if lost.start < lost.end:
            self.missing_bytes += lost.end - lost.start
            self._losses.append(lost)

    @property
    def has_losses(self) -> bool:
        """Whether there are losses that `take_losses` did not return yet."""
        return bool(self._losses)

    def take_losses(self) -> list[Lost]:
        """Return the losses since the last call; the caller has to report them to collectors."""
        taken, self._losses = self._losses, []
        return taken
