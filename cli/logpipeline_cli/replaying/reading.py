"""Reads one partition of a replay, as its collector would, from where it stands to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats.jetstream import JetStream, rfc3339_of, time_ns_of
from logpipeline.nats.pull import Delivered
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch
from logpipeline_cli.errors import CliError
from logpipeline_collector.files.naming import Origin, origin_of

IDLE = 1 << 63

# More than any stream has: what is there then, is meant.
BEYOND = 1 << 62


# The server's own replay policy paces each consumer for itself, from its own first message on:
# hosts of two partitions would no longer be side by side.
class Pace:
    """Gives *partitions* their turns, *speed* times as fast as it was."""

    def __init__(self, partitions: Iterable[int], speed: float) -> None:
        self._speed = speed
        # The time of the next message of each partition; None while it is not known.
        self._next: dict[int, int | None] = dict.fromkeys(partitions)
        self._changed = asyncio.Condition()
        self._begun: tuple[int, float] | None = None

    async def turn(self, partition: int, time_ns: int) -> None:
        """Return when the message of *time_ns* is the next one, and due."""
        async with self._changed:
            self._next[partition] = time_ns
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._is_first(partition))
        await asyncio.sleep(self.due_in_s(time_ns, asyncio.get_running_loop().time()))
        async with self._changed:
            self._next[partition] = None

    async def idle(self, partition: int) -> None:
        """Let nobody wait for *partition*: nothing comes of it now."""
        async with self._changed:
            self._next[partition] = IDLE
            self._changed.notify_all()

    async def done(self, partition: int) -> None:
        """Let nobody wait for *partition* any more."""
        async with self._changed:
            self._next.pop(partition, None)
            self._changed.notify_all()

    def due_in_s(self, time_ns: int, now_s: float) -> float:
        """Return how long a message of *time_ns* has to wait; the first one begins it all."""
        first_ns, begun_s = self._begun = self._begun or (time_ns, now_s)
        return max(begun_s + (time_ns - first_ns) / 1e9 / self._speed - now_s, 0.0)

    def _is_first(self, partition: int) -> bool:
        times = [(time, number) for number, time in self._next.items() if time is not None]
        return len(times) == len(self._next) and min(times)[1] == partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which messages, by the server's time or by sequence, of which hosts and containers; None
    means any. Times are in nanoseconds since 1970.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    host: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    follow: bool = False
    partial: bool = False

    def __post_init__(self) -> None:
        if self.since_ns is not None and self.from_seq is not None:
            raise CliError("--since and --from-seq say the same thing: give one of them")
        if self.until_ns is not None and self.to_seq is not None:
            raise CliError("--until and --to-seq say the same thing: give one of them")
        if self._is_backwards(self.since_ns, self.until_ns):
            raise CliError("--since is after --until: nothing lies between them")
        if self._is_backwards(self.from_seq, self.to_seq):
            raise CliError("--from-seq is after --to-seq: nothing lies between them")

    @property
    def has_sequences(self) -> bool:
        """Whether it is about one stream's own numbers."""
        return self.from_seq is not None or self.to_seq is not None

    def wants(self, origin: Origin) -> bool:
        """Return whether lines of *origin* are asked for."""
        return (
            self.namespace in (None, origin.namespace)
            and self.pod in (None, origin.pod)
            and self.container in (None, origin.container)
        )

    @staticmethod
    def _is_backwards(first: int | None, last: int | None) -> bool:
        return first is not None and last is not None and first > last


@dataclass(frozen=True, slots=True)
class Span:
    """What is to be read of one stream, *created* then: from the sequence *first*, or from
    *since_ns*, to the sequence *last* (None: for ever) or the time *until_ns*.
    """

    stream: str
    created: str
    first: int
    since_ns: int | None
    last: int | None
    until_ns: int | None

    def is_before(self, sequence: int, time_ns: int) -> bool:
        """Return whether a message stands before what is to be read."""
        return sequence < self.first or (self.since_ns is not None and time_ns < self.since_ns)

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def span_of(question: Question, info: dict[str, Any]) -> Span:
    """Return what *question* means for the stream of *info*, as the server told it.

    Raises:
        CliError: a part of it is gone, and only all of it was asked for; or it is yet to come.
    """
    stream, state = str(info["config"]["name"]), info["state"]
    there, end = int(state["first_seq"]), int(state["last_seq"])
    if not question.follow:
        for option, number in (("--from-seq", question.from_seq), ("--to-seq", question.to_seq)):
            if number is not None and number > end:
                raise CliError(f"{option} {number} is beyond the end: {stream} ends at {end}")
    if not question.partial and (gone := _gone(question, state)):
        left = f"{there} to {end}, since {state['first_ts']}" if there <= end else "nothing"
        raise CliError(
            f"{stream} has no longer {gone}; it still has {left}: give --partial to be content "
            "with that"
        )
    last = question.to_seq or (None if question.follow else end)
    return Span(
        stream,
        str(info["created"]),
        max(question.from_seq or 1, there),
        question.since_ns,
        last,
        question.until_ns,
    )


def _gone(question: Question, state: dict[str, Any]) -> str:
    """Return what was asked for by name and is gone, or an empty text."""
    there = int(state["first_seq"])
    if question.from_seq is not None and question.from_seq < there:
        return f"what begins at sequence {question.from_seq}"
    if question.to_seq is not None and question.to_seq < there:
        return f"what ends at sequence {question.to_seq}"
    # Whether something had been there at that time nobody knows; where nothing ever went, all is.
    is_trimmed = there > 1
    if question.since_ns is not None and is_trimmed:
        since = state["first_ts"] if state["messages"] else state["last_ts"]
        if question.since_ns < time_ns_of(since):
            return f"all since {rfc3339_of(question.since_ns)}"
    return ""


class Sink(Protocol):
    """Where the lines of a partition go; see `FolderSink`."""

    @property
    def sequence(self) -> int:
        """The last message of which nothing more is to be written."""

    @property
    def lines(self) -> int:
        """Lines that were written."""

    def learn(self, host: str, batch: Batch) -> None:
        """Know of what stands before."""

    def take(self, read: Read, delivered: Delivered) -> None:
        """Write what is new of a message."""

    def passed(self, delivered: Delivered) -> None:
        """Note that nothing more is to be done with a message."""

    def commit(self) -> None:
        """Make durable what was taken."""

    def close(self) -> None:
        """Let go of everything."""


SinkOf = Callable[[int, Span], Sink]


class Reader:
    """Reads partitions side by side; *messages*, *lines* and what was *unreadable* are counted."""

    def __init__(
        self,
        js: JetStream,
        subjects: Subjects,
        question: Question,
        sink_of: SinkOf,
        pull_bytes: int,
        pace: Pace | None,
    ) -> None:
        self.messages = self.lines = self.unreadable = 0
        self._js = js
        self._subjects = subjects
        self._question = question
        self._sink_of = sink_of
        self._pull_bytes = pull_bytes
        self._pace = pace

    async def read(self, partition: int, span: Span) -> None:
        """Read one partition to the end.

        Raises:
            StreamChanged: the stream is another one, or lost its end.
            ApiError: the server refuses.
            CliError: the disk does.
        """
        sink = self._sink_of(partition, span)
        try:
            if sink.sequence == 0:
                await self._learn(partition, span, sink)
            await self._write(partition, span, sink)
            sink.commit()
        except (asyncio.CancelledError, StreamChanged):
            # What was taken is right.
            sink.commit()
            raise
        finally:
            sink.close()
            self.lines += sink.lines
            if self._pace is not None:
                await self._pace.done(partition)

    async def _learn(self, partition: int, span: Span, sink: Sink) -> None:
        """Know what stands before: lines that were sent again are cut as if all were read."""
        if span.first <= 1 and span.since_ns is None:
            return
        last = span.first - 1 if span.since_ns is None else span.last
        scan = self._scan(span, Range(last=BEYOND if last is None else last), headers_only=True)
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if not span.is_before(delivered.sequence, delivered.time_ns):
                        return
                    self._learn_of(partition, delivered, sink)

    def _learn_of(self, partition: int, delivered: Delivered, sink: Sink) -> None:
        try:
            read = read_message(self._subjects, partition, delivered)
        except BadMessage:
            return  # Nobody archived it.
        if read.batch is not None and has_its_size(read.batch, read.fields):
            sink.learn(read.host, read.batch)

    async def _write(self, partition: int, span: Span, sink: Sink) -> None:
        done, pace = sink.sequence, self._pace
        if span.last is not None and done >= span.last:
            return
        since_ns = None if done else span.since_ns
        wanted = Range(first=max(span.first, done + 1), since_ns=since_ns, last=span.last)
        async with aclosing(self._scan(span, wanted).batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if span.until_ns is not None and delivered.time_ns > span.until_ns:
                        return
                    if pace is not None:
                        await pace.turn(partition, delivered.time_ns)
                    self._take(partition, delivered, sink)
                if not batch:
                    sink.commit()
                    if pace is not None:
                        await pace.idle(partition)

    def _take(self, partition: int, delivered: Delivered, sink: Sink) -> None:
        try:
            read = read_message(self._subjects, partition, delivered)
            if self._question.wants(origin_of(read.host, read.batch)):
                sink.take(read, delivered)
        except BadMessage:
            self.unreadable += 1
        self.messages += 1
        sink.passed(delivered)

    def _scan(self, span: Span, wanted: Range, *, headers_only: bool = False) -> Scan:
        host = self._question.host
        return Scan(
            self._js,
            span.stream,
            wanted,
            created=span.created,
            subject=self._subjects.of_host(host) if host else None,
            headers_only=headers_only,
            pull_bytes=self._pull_bytes,
        )
