"""What a chain hands out: the bytes to send next, with what the wire says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logpipeline.wire import Checksums, Previous

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
