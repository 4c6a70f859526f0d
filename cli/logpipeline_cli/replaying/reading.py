"""Reads the partitions of a replay, as collectors would, from a position to the end."""

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
from logpipeline.origin import Origin, origin_of
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch
from logpipeline_cli.errors import CliError

IDLE = 1 << 63

# A sequence that no stream reaches: all stored messages.
BEYOND = 1 << 62


# The server's own replay policy paces each consumer by itself, from its first message on: the
# partitions would not stay in step.
class Pace:
    """Gives *partitions* their turns, *speed* times as fast as the messages were stored."""

    def __init__(self, partitions: Iterable[int], speed: float) -> None:
        self._speed = speed
        # The time of the next message of each partition; None until it is known.
        self._next: dict[int, int | None] = dict.fromkeys(partitions)
        self._changed = asyncio.Condition()
        self._begun: tuple[int, float] | None = None

    async def turn(self, partition: int, time_ns: int) -> None:
        """Return when the message of *time_ns* is the next one of all partitions, and due."""
        async with self._changed:
            self._next[partition] = time_ns
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._is_first(partition))
        await asyncio.sleep(self.due_in_s(time_ns, asyncio.get_running_loop().time()))
        async with self._changed:
            self._next[partition] = None

    async def idle(self, partition: int) -> None:
        """Let no partition wait for *partition*: it has no message now."""
        async with self._changed:
            self._next[partition] = IDLE
            self._changed.notify_all()

    async def done(self, partition: int) -> None:
        """Let no partition wait for *partition* any more."""
        async with self._changed:
            self._next.pop(partition, None)
            self._changed.notify_all()

    def due_in_s(self, time_ns: int, now_s: float) -> float:
        """Return how long a message of *time_ns* has to wait; the first one sets the start."""
        first_ns, begun_s = self._begun = self._begun or (time_ns, now_s)
        return max(begun_s + (time_ns - first_ns) / 1e9 / self._speed - now_s, 0.0)

    def _is_first(self, partition: int) -> bool:
        times = [(time, number) for number, time in self._next.items() if time is not None]
        return len(times) == len(self._next) and min(times)[1] == partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The messages of a replay, by the server's time or by sequence, and by host and container;
    None means any. Times are in nanoseconds since 1970.
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
            raise CliError("--since and --from-seq both set the beginning: give one of them")
        if self.until_ns is not None and self.to_seq is not None:
            raise CliError("--until and --to-seq both set the end: give one of them")
        if self._is_backwards(self.since_ns, self.until_ns):
            raise CliError("--since is after --until: there is nothing between them")
        if self._is_backwards(self.from_seq, self.to_seq):
            raise CliError("--from-seq is after --to-seq: there is nothing between them")

    @property
    def has_sequences(self) -> bool:
        """Whether it has sequences, which are those of one stream."""
        return self.from_seq is not None or self.to_seq is not None

    def wants(self, origin: Origin) -> bool:
        """Return whether lines of *origin* are wanted."""
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
    """The part of one stream, which was created at *created*, to be read: from the sequence
    *first*, or from *since_ns*, to the sequence *last* (None: without end) or the time *until_ns*.
    """

    stream: str
    created: str
    first: int
    since_ns: int | None
    last: int | None
    until_ns: int | None

    def is_before(self, sequence: int, time_ns: int) -> bool:
        """Return whether a message is before the span."""
        return sequence < self.first or (self.since_ns is not None and time_ns < self.since_ns)

    def encode(self) -> dict[str, Any]:
        """Return the span as JSON values."""
        return asdict(self)


def span_of(question: Question, info: dict[str, Any]) -> Span:
    """Return the span of *question* in the stream that the server describes by *info*.

    Raises:
        CliError: a part of it is gone, and --partial is not given; or it does not exist yet.
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
            f"{stream} no longer has {gone}; it still has {left}: give --partial to accept that"
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
    """Return the part that was asked for and is gone; empty if none is."""
    there = int(state["first_seq"])
    if question.from_seq is not None and question.from_seq < there:
        return f"what begins at sequence {question.from_seq}"
    if question.to_seq is not None and question.to_seq < there:
        return f"what ends at sequence {question.to_seq}"
    # It is unknown whether a removed message was of that time; in a stream from which nothing was
    # removed, nothing is gone.
    is_trimmed = there > 1
    if question.since_ns is not None and is_trimmed:
        since = state["first_ts"] if state["messages"] else state["last_ts"]
        if question.since_ns < time_ns_of(since):
            return f"all since {rfc3339_of(question.since_ns)}"
    return ""


class Sink(Protocol):
    """The output for the lines of one partition; see `FolderSink`."""

    @property
    def sequence(self) -> int:
        """The last message that is completely processed."""

    @property
    def lines(self) -> int:
        """Number of written lines."""

    def learn(self, host: str, batch: Batch) -> None:
        """Note a message before the span, whose bytes are not to be written."""

    def take(self, read: Read, delivered: Delivered) -> None:
        """Write the new lines of a message."""

    def passed(self, delivered: Delivered) -> None:
        """Note that a message is completely processed."""

    def commit(self) -> None:
        """Make written lines durable."""

    def close(self) -> None:
        """Close all files."""


SinkOf = Callable[[int, Span], Sink]


class Reader:
    """Reads streams at the same time, of each what *subject* matches, or all; counts *messages*,
    *lines* and *unreadable* messages.
    """

    def __init__(
        self,
        js: JetStream,
        subjects: Subjects,
        subject: str | None,
        question: Question,
        sink_of: SinkOf,
        pull_bytes: int,
        pace: Pace | None,
    ) -> None:
        self.messages = self.lines = self.unreadable = 0
        self._js = js
        self._subjects = subjects
        self._subject = subject
        self._question = question
        self._sink_of = sink_of
        self._pull_bytes = pull_bytes
        self._pace = pace

    async def read(self, partition: int, span: Span) -> None:
        """Read one partition to the end.

        Raises:
            StreamChanged: the stream was replaced, or lost its end.
            ApiError: the server refuses a request.
            CliError: the disk is full, or failed.
        """
        sink = self._sink_of(partition, span)
        try:
            if sink.sequence == 0:
                await self._learn(partition, span, sink)
            await self._write(partition, span, sink)
            sink.commit()
        except (asyncio.CancelledError, StreamChanged):
            # Lines that were written until then are correct.
            sink.commit()
            raise
        finally:
            sink.close()
            self.lines += sink.lines
            if self._pace is not None:
                await self._pace.done(partition)

    async def _learn(self, partition: int, span: Span, sink: Sink) -> None:
        """Learn the messages before the span, so that lines which are sent again in it are cut."""
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
            return  # such a message was not collected
        if read.batch is not None and has_its_size(read.batch, delivered.message.headers):
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
        return Scan(
            self._js,
            span.stream,
            wanted,
            created=span.created,
            subject=self._subject,
            headers_only=headers_only,
            pull_bytes=self._pull_bytes,
        )
