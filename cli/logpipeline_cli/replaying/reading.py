"""Reads one partition of a replay, as its collector would, from where it stands to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol

from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch
from logpipeline_cli.replaying.pace import Pace
from logpipeline_cli.replaying.question import Question, Span
from logpipeline_collector.archive.naming import origin_of

# More than any stream has: what is there then, is meant.
BEYOND = 1 << 62


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
