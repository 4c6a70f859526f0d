"""The streams of a pipeline are found by their numbers, and none is left out silently; a batch is
of one life of a stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from logpipeline.streamstate import StreamState
from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client, Found
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.source.options import parse

OPTIONS = parse({"servers": "nats://localhost", "pipeline": "logging/prod", "format": "messages"})


class Server:
    """Answers whether a stream is there; *added* are there from the second question on."""

    servers = "nats://localhost"

    def __init__(self, *numbers: int, added: tuple[int, ...] = ()) -> None:
        self._there = {f"{OPTIONS.base}_{number}" for number in numbers}
        self._added = {f"{OPTIONS.base}_{number}" for number in added}

    def find(self, stream: str) -> StreamState | None:
        is_there = stream in self._there
        if stream in self._added or not is_there:
            self._there |= self._added
        return cast(StreamState, object()) if is_there else None


def found(server: Any) -> list[str]:
    return list(planning.look(cast(Client, server), OPTIONS))


def test_a_missing_stream_between_others_is_an_error() -> None:
    """Lines of all later streams would be left out."""
    with pytest.raises(Refused, match=f"{OPTIONS.base}_2 does not exist"):
        found(Server(0, 1, 3, 4))


def test_streams_that_are_added_meanwhile_are_found() -> None:
    """They may come between two questions."""
    assert found(Server(0, 1, added=(2, 3))) == [f"{OPTIONS.base}_{n}" for n in range(4)]


STREAM = "LOGS_0"
CREATED = "2026-11-26T09:00:00Z"
READ = Position(created=CREATED, rollbacks=0, sequence=95, time_ns=1095, after=80)


def messages(first: int, last: int, again_from: int = 1000) -> dict[int, int]:
    """Return the times of messages; those from *again_from* on were stored in a later life."""
    return {n: (1000 if n < again_from else 2000) + n for n in range(first, last + 1)}


class Restored:
    """A stream that loses its newest messages and gets others while a batch is planned: *before*
    and *after* are the times of its messages.
    """

    servers = "nats://localhost"

    def __init__(self, before: dict[int, int], after: dict[int, int]) -> None:
        self._messages = before
        self._after = after

    def find(self, stream: str) -> StreamState:
        first, last = min(self._messages), max(self._messages)
        return StreamState(
            CREATED, first, last, messages=len(self._messages), bytes=10 * len(self._messages),
            last_time_ns=self._messages[last],
        )  # fmt: skip

    def time_at(self, stream: str, state: StreamState, sequence: int) -> int | None:
        return self._messages.get(sequence)

    def first_from(self, stream: str, query: dict[str, Any]) -> Found:
        # The server comes back with this request; those of shippers were first.
        self._messages = self._after
        if "seq" in query:
            return min(Found(*each) for each in self._messages.items() if each[0] >= query["seq"])
        return Found(91, self._messages[91])


def next_end(server: Restored, known: Position, bytes_max: int | None) -> Position:
    """Return the end of the batch behind *known*."""
    client, seen = cast(Client, server), {STREAM: server.find(STREAM)}
    options = replace(OPTIONS, fail_on_data_loss=False)
    begin = planning.begins(client, options, {STREAM: known}, seen)
    lasts = {STREAM: seen[STREAM].last}
    return planning.ends(client, begin, seen, lasts, bytes_max, known={STREAM: known})[STREAM]


@pytest.mark.parametrize("bytes_max", [None, 30])
@pytest.mark.parametrize("first", [1, 96], ids=["kept", "trimmed"])
def test_a_batch_does_not_begin_in_one_life_and_end_in_another(
    first: int, bytes_max: int | None
) -> None:
    """What the later life stored before the batch's begin would be read by no batch. The stream
    has no part in this one; the next one begins where the lives part.
    """
    server = Restored(messages(first, 100), messages(min(first, 91), 110, again_from=91))

    once = next_end(server, READ, bytes_max)
    twice = next_end(server, once, bytes_max)

    assert once == READ
    assert (twice.after, twice.rollbacks) == (90, 1)


@pytest.mark.parametrize("bytes_max", [None, 30])
def test_a_stream_that_lost_only_what_was_not_read_goes_on(bytes_max: int | None) -> None:
    """Its begin is still there."""
    server = Restored(messages(1, 100), messages(1, 110, again_from=96))

    found = next_end(server, READ, bytes_max)

    assert (found.after, found.rollbacks) == (95, 0)
    assert found.time_ns == 2000 + found.sequence


def test_a_query_without_a_next_batch_is_to_be_run_again() -> None:
    """It would leave out the stream without a word."""
    server = Restored(messages(1, 100), messages(1, 110, again_from=91))
    begin, lasts = {STREAM: READ}, {STREAM: 100}

    end = planning.ends(cast(Client, server), begin, {STREAM: server.find(STREAM)}, lasts, None)

    with pytest.raises(Refused, match=r"LOGS_0 changed .* run the query again"):
        planning.check_whole(begin, end, lasts)
    planning.check_whole(begin, {STREAM: replace(READ, sequence=100)}, lasts)
    planning.check_whole(begin, begin, {STREAM: 95})
