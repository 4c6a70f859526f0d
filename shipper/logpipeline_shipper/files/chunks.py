"""What a chain hands out: the bytes to send next, with what the wire says about them."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.checksum import Checksum
from logpipeline.wire import Previous


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The bytes ``[start, end)`` of a generation.

    They end with a line unless *ends_inside_line*; the one exception is the last line of a file
    that ended without a newline, which *lines* counts as a line. *checksum* is the generation's
    before the first of them. *begins* says that the source is read from here on, and what lies
    before is left out on purpose.
    """

    generation: str
    start: int
    end: int
    data: bytes
    lines: int
    first_time_ns: int
    last_time_ns: int
    previous: Previous | None
    checksum: Checksum
    starts_inside_line: bool
    ends_inside_line: bool
    begins: bool = False
