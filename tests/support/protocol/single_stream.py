"""A reader of one partition of a stream that holds others, as a model to be searched: messages of
ours and of others are stored, sent late, on their way and removed, and a server that no longer
leads the stream answers as it was, for less than the time between two looks. `StreamReader` itself
runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from logpipeline.nats.jetstream import JetStream, rfc3339_of
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.records import StreamPosition
from logpipeline_collector import stream_reader
from logpipeline_collector.stream_reader import ConsumerName, Interrupted, StreamReader
from protocol.replay import Asked, Do, Ended, Request, run

CREATED, OURS = "2026-11-25T00:00:00Z", "logs.p0.>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: messages, looks of the reader, changes of the stream's leader, and messages
    that the stream lets go.
    """

    messages: int = 3
    looks: int = 3
    leaders: int = 1
    removed: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment: of each message that was *stored* whether it is ours, how many the
    stream has let go, up to where the consumer looked for ours (*cursor*), what it has *sent*, how
    much of that *arrived*; the reader's results, up to where it has read or *passed*, what it took.

    A former leader has the first *former* messages, and has answered in this look or before if it
    *was_asked*; None if there is none.
    """

    stored: tuple[bool, ...] = ()
    removed: int = 0
    cursor: int = 0
    sent: tuple[int, ...] = ()
    arrived: int = 0
    former: int | None = None
    was_asked: bool = False
    leaders: int = 0
    looks: int = 0
    passed: int = 0
    taken: tuple[int, ...] = ()
    results: tuple[Any, ...] = ()


class _JetStream:
    """JetStream as the reader asks it."""

    prefix = "$JS.API"
    connection = SimpleNamespace(
        max_payload_bytes=1, new_inbox=lambda: "_INBOX.x", is_connected=True, sessions=1
    )

    def __init__(self, do: Do) -> None:
        self._do = do

    async def stream_info(self, name: str) -> dict[str, Any]:
        last = self._do("end")
        state = {"first_seq": 1, "last_seq": last, "messages": last, "bytes": last}
        state |= {"last_ts": rfc3339_of(last)}
        return {"created": CREATED, "state": state, "config": {}}

    async def call(self, request: str, body: Any = None) -> Any:
        if request.startswith("CONSUMER.INFO"):
            # Its server may be behind, and know of nothing more.
            return {"num_pending": 0, "delivered": {"consumer_seq": self._do("sent")}}
        return {"consumers": [], "total": 0}

    async def consumer_create(self, stream: str, config: Any, *, action: str) -> Any:
        self._do("open", config["opt_start_seq"] - 1)
        return {"num_pending": 0}

    async def next_from_leader(self, name: str, sequence: int, subject: str) -> Any:
        found = self._do("find", sequence)
        return SimpleNamespace(sequence=found) if found else None


class _Pulled:
    """Stands for a `PullReader`."""

    def __init__(self, do: Do) -> None:
        self._do = do

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        return [
            Delivered(RawMessage(b"", b"", b"", b""), sequence, number, sequence, 0)
            for number, sequence in self._do("take")
        ]


class _Clock:
    """Long enough goes by between two takes for a look."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def time(self) -> float:
        self._now_s += 2 * stream_reader.SILENCE_BEFORE_LOOK_S
        return self._now_s


async def _read(do: Do) -> None:
    """Do as a collector's worker does with what it is made of, for ever."""
    clock = _Clock()
    with patch.object(asyncio, "get_running_loop", lambda: clock):
        position, opened = StreamPosition(CREATED, 0, 0), 0
        while True:
            opened += 1
            reader = StreamReader(
                cast(JetStream, _JetStream(do)),
                "LOGS",
                ConsumerName("main", 1, opened, 0),
                pull_bytes=1,
                headers_only=False,
                subjects=(OURS,),
            )
            reader._reader = cast(Any, _Pulled(do))
            try:
                await reader.open(position)
                while True:
                    for delivered in await reader.take(timeout_s=1.0):
                        position = StreamPosition(CREATED, delivered.sequence, 0)
                        do("taken", delivered.sequence)
                    passed = reader.passed
                    if passed is not None:
                        do("pass", passed.sequence)
            except Interrupted:
                continue


@dataclass(frozen=True, slots=True)
class SingleStream:
    """The model, within *bounds*."""

    bounds: Bounds
    asked: Asked = field(default_factory=Asked)

    def first(self) -> World:
        """Return the world in which nothing is stored."""
        return World()

    def wrong(self, world: World) -> str:
        """Return which promise does not hold: what the stream still had when it could be sent is
        taken, once, before the position is behind it.
        """
        for sequence, is_ours in enumerate(world.stored, 1):
            is_lost = sequence <= world.removed and sequence not in world.sent
            is_passed = sequence <= world.passed and sequence not in world.taken
            if is_ours and is_passed and not is_lost:
                return f"message {sequence} was passed, and never read"
        if len(set(world.taken)) < len(world.taken):
            return "a message was taken twice"
        return ""

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        if len(world.stored) < self.bounds.messages:
            for whose, is_ours in (("ours", True), ("another partition's", False)):
                stored = replace(world, stored=(*world.stored, is_ours))
                yield f"message {len(stored.stored)}, {whose}, is stored", stored
        if world.removed < min(self.bounds.removed, len(world.stored)):
            yield (
                f"message {world.removed + 1} is let go",
                replace(world, removed=world.removed + 1),
            )
        if world.leaders < self.bounds.leaders:
            changed = replace(
                world, former=len(world.stored), was_asked=False, leaders=world.leaders + 1
            )
            yield f"another server leads, one goes on with {changed.former} messages", changed
        following = _ours(world, world.cursor)
        if following:
            sent = replace(world, cursor=following, sent=(*world.sent, following))
            yield f"message {following} is sent", sent
        request = self._next(world.results)
        if isinstance(request, Ended):
            raise AssertionError(f"the reader ends: {request.error}")
        for text, after, result in self._effects(world, request):
            yield f"the reader {text}", replace(after, results=(*world.results, result))

    def _effects(self, world: World, request: Request) -> Iterator[tuple[str, World, Any]]:
        match request:
            case ("open", (after,)):
                begun = replace(world, cursor=after, sent=(), arrived=0)
                yield f"begins behind {after}", begun, None
            case ("take", ()):
                if world.arrived < len(world.sent):
                    number = world.arrived + 1
                    delivery = (number, world.sent[world.arrived])
                    arrived = replace(world, arrived=number)
                    yield f"gets {delivery[1]}", arrived, (delivery,)
                if world.looks < self.bounds.looks:
                    yield "gets nothing", replace(world, looks=world.looks + 1), ()
            case ("end", ()):
                if world.was_asked:
                    # Since the look before it has heard of the new leader.
                    world = replace(world, former=None, was_asked=False)
                for who, length, after in _leaders(world):
                    yield f"hears from {who} that {length} is the last", after, length
            case ("sent", ()):
                yield f"hears that {len(world.sent)} were sent", world, len(world.sent)
            case ("find", (sequence,)):
                for who, length, after in _leaders(world):
                    found = _ours(world, sequence - 1, length)
                    yield f"finds {found or 'nothing'} at {who}", after, found
            case ("taken", (sequence,)):
                taken = replace(world, taken=(*world.taken, sequence))
                yield f"writes {sequence}", taken, None
            case ("pass", (sequence,)):
                yield f"passes what is up to {sequence}", replace(world, passed=sequence), None

    def _next(self, results: tuple[Any, ...]) -> Request | Ended:
        return self.asked.next_effect(0, lambda do: run(_read(do)), results)


def _ours(world: World, after: int, length: int | None = None) -> int:
    """Return our first message behind *after*, of the first *length*; 0 if there is none."""
    stored = world.stored[:length]
    begin = max(after, world.removed)
    return next((at for at, ours in enumerate(stored, 1) if ours and at > begin), 0)


def _leaders(world: World) -> Iterator[tuple[str, int, World]]:
    """Yield who may answer, how many messages it has, and the world after that."""
    asked = replace(world, was_asked=world.former is not None)
    yield "the leader", len(world.stored), asked
    if world.former is not None:
        yield "the former leader", world.former, asked
