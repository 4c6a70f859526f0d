"""Where a message may end. Pure: bytes in, a length out."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline import cri
from logpipeline_shipper.files.sources import Format


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
    length = cri.last_cut(data) if format == "cri" else data.rfind(b"\n") + 1
    if length:
        return Cut(length)
    if len(data) >= line_bytes_max:
        # A run of fragments is cut between two of them, so that each stays a line of its format.
        whole = data.rfind(b"\n", 0, line_bytes_max) + 1 if format == "cri" else 0
        return Cut(whole or line_bytes_max, inside_line=True, forced=True)
    if closed and data:
        return Cut(len(data), inside_line=format == "cri" and bool(open_streams(data)))
    return Cut(0)


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
    last = data.rfind(b"\n", 0, len(data) - 1) + 1
    return cri.time_ns(data[:40]), cri.time_ns(data[last : last + 40])
