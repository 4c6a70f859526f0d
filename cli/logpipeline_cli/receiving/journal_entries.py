"""Entries of the systemd journal, as `journalctl -o json` writes them. Pure."""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline_cli.receiving.syslog import json_of, raw_line

# A field may have 768 MiB (a core dump); a longer entry is replaced by a line that names it.
ENTRY_BYTES_MAX = 8 * 1024 * 1024

# In a string a quote has a backslash before it, so this is never a part of a message.
_CURSOR = re.compile(rb'(?<!\\)"__CURSOR" ?: ?"([^"\\]{1,1000})"')
# The id of a sequence, and the entry's number in it.
_NUMBER = re.compile(r"s=([0-9a-f]{32});i=([0-9a-f]{1,16})(?:;|$)")
# A machine has one sequence, or before systemd 254 one for each user beside it.
SEQUENCES_MAX = 1000
# Bytes kept of a piece that was cut off: a cursor may lie across two pieces.
_OVERLAP_BYTES = 1200


class Entry(NamedTuple):
    """One entry as a line of JSON, and the position that it is read from."""

    line: bytes
    cursor: str
    cut_bytes: int = 0


class EntryReader:
    """Finds entries in what a process prints, piece by piece."""

    def __init__(self, bytes_max: int = ENTRY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._cut_bytes = 0
        self._cursor = b""

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that *data* completes; a line without a cursor is none."""
        found: list[Entry] = []
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            self._buffer += data[at:end]
            entry = self._finish()
            if entry is not None:
                found.append(entry)
            at = end + 1
        self._buffer += data[at:]
        if len(self._buffer) > self._bytes_max:
            self._cut()
        return found

    def _cut(self) -> None:
        self._cursor = self._cursor or _cursor_in(self._buffer)
        dropped = max(0, len(self._buffer) - _OVERLAP_BYTES)
        del self._buffer[:dropped]
        self._cut_bytes += dropped

    def _finish(self) -> Entry | None:
        if len(self._buffer) > self._bytes_max or self._cut_bytes:
            self._cut()
        cursor = (self._cursor or _cursor_in(self._buffer)).decode("utf-8", "replace")
        cut_bytes = self._cut_bytes + len(self._buffer) if self._cut_bytes else 0
        line = bytes(self._buffer) + b"\n"
        self._buffer.clear()
        self._cut_bytes, self._cursor = 0, b""
        if not cursor:
            return None
        if cut_bytes:
            return Entry(json_of({"__CURSOR": cursor, "cut_bytes": cut_bytes}), cursor, cut_bytes)
        return Entry(line, cursor)


class Jump(NamedTuple):
    """Between the entry at the cursor *former* and the next one *missing* numbers stand in no entry
    that was read.
    """

    former: str
    missing: int


class _Last(NamedTuple):
    number: int
    read: int
    cursor: str


class Numbers:
    """Follows the numbers of entries in the order in which they are read. A journal counts its
    entries across its files: those of other sequences in between may be what is passed over in one.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, _Last] = OrderedDict()
        self._count = 0

    def note(self, cursor: str) -> Jump | None:
        """Note the entry at *cursor*, and return by how much its number is too high."""
        self._count += 1
        if (found := _NUMBER.match(cursor)) is None:
            return None
        sequence, number = found[1], int(found[2], 16)
        former = self._last.pop(sequence, None)
        self._last[sequence] = _Last(number, self._count, cursor)
        if len(self._last) > SEQUENCES_MAX:
            self._last.popitem(last=False)
        if former is None:
            return None
        missing = (number - former.number) - (self._count - former.read)
        return Jump(former.cursor, missing) if missing > 0 else None


def text_line(line: bytes) -> bytes:
    """Return an entry, a *line* of JSON, as a line of text, as `journalctl -o short-iso` shows it;
    as it is where it has no message.
    """
    try:
        fields = json_text.parse(line)
        message = _bytes_of(fields["MESSAGE"])
        seconds = int(fields["__REALTIME_TIMESTAMP"]) / 1e6
        time = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
        head = f"{time} {_text(fields, '_HOSTNAME')} {_text(fields, 'SYSLOG_IDENTIFIER')}"
        process = f"[{_text(fields, '_PID')}]" if "_PID" in fields else ""
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return line
    return raw_line(f"{head}{process}: ".encode("utf-8", "replace") + message, 0)


def _cursor_in(data: bytes | bytearray) -> bytes:
    found = _CURSOR.search(data)
    return bytes(found[1]) if found else b""


def _bytes_of(value: Any) -> bytes:
    """Return the bytes of a field: text, numbers where it is not text, or a list of several."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        return b"\n".join(map(_bytes_of_one, value))
    return _bytes_of_one(value)


def _bytes_of_one(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    # Of a number, Python makes as many bytes as it says.
    if not isinstance(value, list):
        raise TypeError(f"a field is text or a list, not {type(value).__name__}")
    return bytes(value)


def _text(fields: dict[str, Any], name: str) -> str:
    return _bytes_of(fields.get(name, "-")).decode("utf-8", "replace")
