"""Requests in JSON of limited size. Each line is encoded once, and its bytes are joined: so what is
measured is what is sent.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from logpipeline_cli.sinks.destination import parts


class Piece(NamedTuple):
    """A line in JSON, and its *group* in JSON: what a request says once for lines in a row."""

    group: bytes
    data: bytes


class Form(NamedTuple):
    """What stands around lines: *begin*, *end*, and *group*, which has two ``%b``, for the group
    and for its lines. *added_bytes* is what the receiver itself adds to a line before it measures.
    """

    begin: bytes
    group: bytes
    end: bytes
    added_bytes: int = 0

    def bodies(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        """Yield the bodies of the requests that hold *pieces* in their order, each of at most
        `REQUEST_BYTES_MAX` bytes unless one line alone has more.
        """
        for part in parts(pieces, self._size):
            runs = itertools.groupby(part, lambda piece: piece.group)
            groups = [
                self.group % (group, b",".join(piece.data for piece in run)) for group, run in runs
            ]
            yield self.begin + b",".join(groups) + self.end

    def _size(self, piece: Piece, before: Piece | None) -> int:
        size = len(piece.data) + len(b",") + self.added_bytes
        if before is not None and before.group == piece.group:
            return size
        return size + len(piece.group) + sum(map(len, (self.begin, self.group, self.end)))


def encoded(value: Any) -> bytes:
    """Return *value* as JSON. What no text holds, as in a stranger's names, becomes ``?``."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
