"""The log format of the Container Runtime Interface: ``<RFC 3339 time> <stdout|stderr> <P|F>
<text>``.

Shippers only need to know where a message may end; readers parse the lines and join their
fragments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

# One search instead of two takes a third of the time; a match may be text, so it is looked at.
_FRAGMENT = re.compile(rb"d(?:out|err) P[ :\n]")

# From the year 1 to 9999.
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799


class CriLine(NamedTuple):
    """One line of a program, or what is known of it: *whole* is False where its end lies
    elsewhere.
    """

    time: bytes
    stream: bytes
    text: bytes
    whole: bool


def is_fragment(tag: bytes) -> bool:
    """Return whether a line with this *tag* goes on in a later one. A tag may hold several, with
    colons between them; the first one says so.
    """
    return tag == b"P" or tag[:2] == b"P:"


def has_fragments(buffer: bytes) -> bool:
    """Return whether *buffer* may hold fragments of lines; False is certain."""
    return _FRAGMENT.search(buffer) is not None


def last_cut(buffer: bytes) -> int:
    """Return the length of the longest start of *buffer* that ends with a line, outside every
    fragment run.

    *buffer* must begin outside a fragment run. 0 means that nothing can be cut yet.
    """
    end = buffer.rfind(b"\n") + 1
    if not end or not _FRAGMENT.search(buffer):
        return end
    open_streams: set[bytes] = set()
    cut = position = 0
    while position < end:
        newline = buffer.index(b"\n", position) + 1
        fields = buffer[position : min(newline - 1, position + 64)].split(b" ", 3)
        if len(fields) >= 3 and fields[1] in (b"stdout", b"stderr"):
            if is_fragment(fields[2]):
                open_streams.add(fields[1])
            else:
                open_streams.discard(fields[1])
        position = newline
        if not open_streams:
            cut = position
    return cut


def join(payload: bytes) -> Iterator[CriLine]:
    """Yield the program's lines of *payload*, each with its fragments joined, in the order of
    their ends.

    A line that is not in the format is yielded as it is, with an empty time and stream: nothing is
    dropped. Runs that *payload* leaves open are yielded last, with *whole* False.
    """
    open_runs: dict[bytes, tuple[bytes, list[bytes]]] = {}
    lines = payload.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        fields = line.split(b" ", 3)
        if len(fields) < 3 or fields[1] not in (b"stdout", b"stderr"):
            yield CriLine(b"", b"", line, True)
            continue
        time, stream, tag = fields[:3]
        text = fields[3] if len(fields) == 4 else b""
        if is_fragment(tag):
            open_runs.setdefault(stream, (time, []))[1].append(text)
            continue
        started = open_runs.pop(stream, None)
        if started:
            yield CriLine(started[0], stream, b"".join(started[1]) + text, True)
        else:
            yield CriLine(time, stream, text, True)
    for stream, (time, texts) in open_runs.items():
        yield CriLine(time, stream, b"".join(texts), False)


def time_ns(line: bytes) -> int:
    """Return the time at the head of a CRI *line* in nanoseconds since 1970, or 0 where there is
    none.
    """
    stamp = line[:40].split(b" ", 1)[0]
    try:
        whole, _, rest = stamp.decode("ascii").partition(".")
        digits = rest.rstrip("Z").split("+")[0].split("-")[0] if rest else ""
        zone = rest[len(digits) :] if rest else ""
        if not rest:
            base = datetime.fromisoformat(whole)
        else:
            base = datetime.fromisoformat(whole + ("+00:00" if zone in ("Z", "") else zone))
        if base.tzinfo is None:
            base = base.replace(tzinfo=UTC)
        seconds = int(base.timestamp())
        # In UTC a time may lie before the first year, or behind the last, that a time can have.
        if not _SECONDS_MIN <= seconds <= _SECONDS_MAX:
            return 0
        return seconds * 1_000_000_000 + int((digits + "000000000")[:9] or "0")
    except (ValueError, UnicodeDecodeError, OverflowError):
        return 0
