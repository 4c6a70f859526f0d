"""The lines of a batch in requests of limited size, each under a name that it always has, for
systems that recognise a request by its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from logpipeline.consuming.message import Batch
from logpipeline_cli.batches import json_lines
from logpipeline_cli.sinks.destination import created_of, name_of, part_name, parts


class _Message(NamedTuple):
    sequence: int
    lines: list[bytes]
    size_bytes: int


class LineRequests:
    """Gives the lines to *send*, with the name of their request. A request holds whole messages.

    If a batch ends at one of its requests, those before it stay. The reader may then hand out each
    message alone, under another name, to find the one that is refused, also where its tries are
    over: what was taken is not sent again. A process that is killed in between does not know of it,
    and of a request without an answer it is not known at all.
    """

    def __init__(self, send: Callable[[str, list[bytes]], Awaitable[None]]) -> None:
        self._send = send
        # Sequences of the batch in hand that were taken, of each stream, by its creation, too.
        self._taken: dict[tuple[str, str], set[int]] = {}

    async def write(self, batch: Batch) -> None:
        """Send the lines of *batch*; raises what *send* does."""
        stream = (batch.stream, created_of(batch))
        # A batch before this one does not come again.
        taken = {each for each in self._taken.get(stream, ()) if each >= batch.first}
        self._taken[stream] = taken
        messages = [_message_of(each.sequence, json_lines(each)) for each in batch.messages]
        name = name_of(batch)
        for number, part in enumerate(parts(messages, _size)):
            lines = [line for each in part for line in each.lines]
            sequences = {each.sequence for each in part}
            if lines and not sequences <= taken:
                await self._send(part_name(name, number), lines)
            taken |= sequences


def _message_of(sequence: int, lines: list[bytes]) -> _Message:
    # Each line has a newline or a comma, and an array two brackets.
    return _Message(sequence, lines, sum(map(len, lines)) + len(lines) + 1)


def _size(message: _Message, _: _Message | None) -> int:
    return message.size_bytes
