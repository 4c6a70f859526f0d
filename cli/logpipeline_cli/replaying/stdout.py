"""Replays to standard output: as into one file in which the lines of all sources stand."""

from __future__ import annotations

import sys

from logpipeline import wire
from logpipeline.messages import Read
from logpipeline.nats.pull import Delivered
from logpipeline.wire import Batch
from logpipeline_cli.output import escaped
from logpipeline_collector.archive.naming import origin_of
from logpipeline_collector.archive.render import Output, Piece, Tail, render
from logpipeline_collector.archive.sources import Sources


class Page:
    """Standard output; a terminal gets no control characters of what was logged."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._tail: Tail | None = None
        self._is_terminal = sys.stdout.isatty()

    def write(self, piece: Piece) -> None:
        """Write *piece* behind what was written; a line that was not at its end ends there, unless
        this goes on with it.
        """
        data, self._tail = render(self._output, piece, self._tail)
        if self._is_terminal:
            data = "\n".join(escaped(line) for line in data.split(b"\n")).encode()
        sys.stdout.buffer.write(data)


class PageSink:
    """The lines of one partition on the *page*."""

    def __init__(self, page: Page) -> None:
        self.lines = 0
        self.sequence = 0
        self._page = page
        self._sources = Sources()

    def learn(self, host: str, batch: Batch) -> None:
        """Know of what stands before."""
        self._sources.learn(host, batch, self._sources.decide(host, batch))

    def take(self, read: Read, delivered: Delivered) -> None:
        """Write what is new of a message.

        Raises:
            BadMessage: it cannot be read.
        """
        payload, batch = delivered.message.data, read.batch
        if batch is None:
            origin = origin_of(read.host, None)
            self._write(Piece(origin, None, payload + b"\n", 0, delivered.time_ns))
            return
        decision = self._sources.decide(read.host, batch)
        if decision.ranges:
            data = wire.decode_payload(batch, payload)
            time_ns = batch.last_time_ns or delivered.time_ns
            for part in decision.ranges:
                wanted = data[part.start - batch.start : part.end - batch.start]
                origin = origin_of(read.host, batch)
                self._write(Piece(origin, batch, wanted, part.start, time_ns))
        self._sources.learn(read.host, batch, decision, sequence=delivered.sequence)

    def passed(self, delivered: Delivered) -> None:
        """Let a reader behind a pipe see what was written."""
        self.sequence = delivered.sequence
        sys.stdout.flush()

    def commit(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""

    def _write(self, piece: Piece) -> None:
        self._page.write(piece)
        self.lines += piece.data.count(b"\n")
