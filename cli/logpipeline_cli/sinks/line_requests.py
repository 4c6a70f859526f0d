"""The lines of a batch in requests of limited size, each under a name that it always has, for
systems that recognise a request by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from logpipeline.consuming.message import Batch
from logpipeline_cli.batches import json_lines
from logpipeline_cli.sinks.destination import (
    Refused,
    created_of,
    name_of,
    part_name,
    parts,
)


class _Message(NamedTuple):
    sequence: int
    lines: list[bytes]
    size_bytes: int


class LineRequests:
    """Gives the lines to *send*, with the name of their request. A request holds whole messages.

    If a request is refused, those of its batch that were taken before stay. The reader then hands
    out each message alone, under another name, to find the one that is refused: those that were
    taken are not sent again. A process that is killed in between does not know of them.
    """

    def __init__(self, send: Callable[[str, list[bytes]], Awaitable[None]]) -> None:
        self._send = send
        # Sequences that were taken of the last refused batch of each stream, by its creation, too.
        self._taken: dict[tuple[str, str], set[int]] = {}

    async def write(self, batch: Batch) -> None:
        """Send the lines of *batch*; raises what *send* does."""
        stream = (batch.stream, created_of(batch))
        messages = [_message_of(each.sequence, json_lines(each)) for each in batch.messages]
        if {each.sequence for each in messages} <= self._taken.get(stream, set()):
            return
        name, taken = name_of(batch), set[int]()
        for number, part in enumerate(parts(messages, lambda each: each.size_bytes)):
            lines = [line for each in part for line in each.lines]
            try:
                if lines:
                    await self._send(part_name(name, number), lines)
            except Refused:
                if taken:
                    self._taken[stream] = taken
                raise
            taken |= {each.sequence for each in part}


def _message_of(sequence: int, lines: list[bytes]) -> _Message:
    return _Message(sequence, lines, sum(map(len, lines)) + len(lines))
