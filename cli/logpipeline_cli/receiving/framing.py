"""Messages in a stream of bytes, as RFC 6587 frames them: by a count, or by a byte at their end.
Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# RFC 5424 asks for 2,048 at least; the largest datagram has 65,507.
MESSAGE_BYTES_MAX = 64 * 1024
LF = b"\n"
NUL = b"\0"

# A count is followed by a priority: a message that begins with a number is none.
_COUNT = re.compile(rb"([1-9][0-9]{0,8}) <")
_MAYBE_COUNT = re.compile(rb"[1-9][0-9]{0,8}( ?)")


class Framed(NamedTuple):
    """One message, of which *cut_bytes* are left out at its end. *is_whole* is False where the
    connection ended within it.
    """

    data: bytes
    cut_bytes: int = 0
    is_whole: bool = True


class Framer:
    """The messages of one connection, whose frames may be of both kinds.

    It holds no more than one message of *bytes_max*, however long the sender says that it is.
    *delimiter* ends what has no count.
    """

    def __init__(self, bytes_max: int = MESSAGE_BYTES_MAX, delimiter: bytes = LF) -> None:
        self._bytes_max = bytes_max
        self._delimiter = delimiter
        self._buffer = bytearray()
        # How many bytes of a counted message are still missing; None: it ends with a delimiter.
        self._left: int | None = None
        self._cut_bytes = 0
        self._is_inside = False

    def feed(self, data: bytes) -> list[Framed]:
        """Return the messages that *data* completes."""
        found: list[Framed] = []
        if self._buffer and not self._is_inside:
            # The beginning of a count.
            data, self._buffer = bytes(self._buffer) + data, bytearray()
        at = 0
        while at < len(data):
            if not self._is_inside:
                if _MAYBE_COUNT.fullmatch(data, at):
                    self._buffer += data[at:]
                    break
                at = self._begin(data, at)
            at = self._take(data, at, found)
        return found

    def end(self) -> list[Framed]:
        """Return the message in which the connection ended, whole or not, if there is one."""
        if not self._buffer:
            return []
        # A last message without its delimiter is whole, as far as can be known.
        return [self._finish(is_whole=self._left is None)]

    def _begin(self, data: bytes, at: int) -> int:
        """Find out how the message at *at* is framed; return where its bytes begin."""
        self._is_inside = True
        match = _COUNT.match(data, at)
        if match is None:
            return at
        self._left = int(match[1])
        return match.end() - 1

    def _take(self, data: bytes, at: int, found: list[Framed]) -> int:
        """Take what *data* has of the present message; return where the next one begins."""
        if self._left is not None:
            end = min(at + self._left, len(data))
            self._left -= end - at
            self._add(data, at, end)
            if self._left == 0:
                found.append(self._finish())
            return end
        end = data.find(self._delimiter, at)
        if end < 0:
            self._add(data, at, len(data))
            return len(data)
        self._add(data, at, end)
        framed = self._finish()
        if framed.data:
            found.append(framed)
        return end + 1

    def _add(self, data: bytes, start: int, end: int) -> None:
        room = self._bytes_max - len(self._buffer)
        self._buffer += data[start : min(end, start + room)]
        self._cut_bytes += max(0, end - start - room)

    def _finish(self, *, is_whole: bool = True) -> Framed:
        data = bytes(self._buffer)
        if self._left is None and self._delimiter == LF:
            data = data.removesuffix(b"\r")
        framed = Framed(data, self._cut_bytes, is_whole)
        self._buffer = bytearray()
        self._cut_bytes, self._left, self._is_inside = 0, None, False
        return framed
