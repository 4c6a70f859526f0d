"""The outputs of a replay: a folder, written by the collector's code, or standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from logpipeline.failpoints import reach
from logpipeline.messages import Read
from logpipeline.nats.pull import Delivered
from logpipeline.origin import origin_of
from logpipeline.records import Reached, StreamPosition
from logpipeline.statefile import StateBroken, read_state, write_state
from logpipeline.wire import BadMessage, Batch
from logpipeline_cli.errors import CliError
from logpipeline_cli.output import escaped
from logpipeline_cli.replaying.reading import Span
from logpipeline_collector.config import FilesConfig
from logpipeline_collector.files.partition import FileStorage
from logpipeline_collector.files.render import Output, Piece, Tail, render
from logpipeline_collector.partition_writer import PartitionWriter, read_new
from logpipeline_collector.sink import SinkBroken, SinkBusy, SinkFailed, SinkFull
from logpipeline_collector.sources import Sources

MARK = "replay.state"
KIND = "replay"
VERSION = 1
GROUP = "replay"
COMMIT_BYTES = 16 * 1024 * 1024
# Nothing is rotated: a file of a replay holds all lines that the collector has in several files.
NEVER = float("inf")
NEVER_BYTES = 1 << 62


class Folder:
    """The folder of one replay; *asked* are the arguments that identify the replay."""

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self.path = path
        self._asked = asked

    def spans(self) -> dict[int, Span] | None:
        """Return the spans of an interrupted replay with the same arguments, or None if the folder
        is new.

        Raises:
            CliError: the folder holds other files, or the same replay, complete.
        """
        try:
            state = read_state(self.path / MARK, KIND, VERSION)
        except StateBroken as error:
            raise CliError(f"{error}: delete {self.path}, or give another folder") from error
        if state is None:
            if self.path.exists() and any(self.path.iterdir()):
                raise CliError(f"{self.path} is not empty: give an empty or new folder with --out")
            return None
        if state["asked"] != self._asked:
            raise CliError(
                f"{self.path} holds another replay: give another folder with --out, or delete it"
            )
        if state.get("done"):
            # Of an hour ago, with `--since 1h`: what came since then is not in it.
            raise CliError(
                f"{self.path} holds this replay, complete up to the moment when it was begun: for "
                "newer lines give another folder with --out, or delete it"
            )
        return {int(number): Span(**span) for number, span in state["spans"].items()}

    def begin(self, spans: dict[int, Span]) -> None:
        """Store the spans, before anything is read."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write(spans, is_done=False)

    def end(self, spans: dict[int, Span]) -> None:
        """Store that all of the spans is written."""
        self._write(spans, is_done=True)

    def _write(self, spans: dict[int, Span], *, is_done: bool) -> None:
        rows = {str(number): span.encode() for number, span in spans.items()}
        state = {"asked": self._asked, "spans": rows, "done": is_done}
        write_state(self.path / MARK, KIND, VERSION, state)


def config_of(
    collectors: FilesConfig, folder: Path, output: Literal["raw", "cri", "json"]
) -> FilesConfig:
    """Return the configuration for a replay: that of *collectors*, but with one file for each
    place.
    """
    return replace(
        collectors,
        folder=folder,
        group=GROUP,
        output=output,
        rotate_bytes=NEVER_BYTES,
        rotate_age_s=NEVER,
        compression="none",
        retention_age_s=NEVER,
        retention_bytes=None,
        min_free_percent=0,
    )


class FolderSink:
    """The files of one partition."""

    def __init__(self, storage: FileStorage, partition: int, span: Span) -> None:
        with _explained():
            self._writer = PartitionWriter(storage.open(partition))
        done = self._writer.committed()
        self._position = done.position if done else StreamPosition(span.created, 0, 0)
        self._committed = self._position

    @property
    def sequence(self) -> int:
        """The last message whose lines are in the files."""
        return self._position.sequence

    @property
    def lines(self) -> int:
        """Number of written lines."""
        return self._writer.lines

    def learn(self, host: str, batch: Batch) -> None:
        """Note a message before the span, whose bytes are not to be written."""
        # Its payload is not read: where only the payload could prove something, its headers count.
        with suppress(BadMessage):
            self._writer.learn(host, batch, None, is_believed=True)

    def take(self, read: Read, delivered: Delivered) -> None:
        """Write the new lines of a message.

        Raises:
            BadMessage: it cannot be read.
            CliError: the disk is full, or failed.
        """
        with _explained():
            self._writer.take(
                read.host,
                read.batch,
                delivered.message.data,
                sequence=delivered.sequence,
                time_ns=delivered.time_ns,
            )
            if self._writer.dirty_bytes > COMMIT_BYTES:
                self._position = self._at(delivered)
                self.commit()
                reach("replay.committed")

    def passed(self, delivered: Delivered) -> None:
        """Note that a message is completely processed."""
        self._position = self._at(delivered)

    def commit(self) -> None:
        """Make written lines durable."""
        if self._position == self._committed:
            return
        with _explained():
            pending = self._writer.prepare(
                Reached(self._position, 0), epoch=1, since=Reached(self._committed, 0)
            )
            self._writer.write(pending)
            self._writer.confirm(pending)
        self._committed = self._position

    def close(self) -> None:
        """Close the files; lines that are not committed do not count."""
        self._writer.close()

    def _at(self, delivered: Delivered) -> StreamPosition:
        return StreamPosition(self._position.created, delivered.sequence, delivered.time_ns)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SinkFull as error:
        raise CliError(
            f"the disk is full ({error}): free some space, then run the same command to continue"
        ) from error
    except (SinkBroken, SinkBusy, SinkFailed) as error:
        raise CliError(str(error)) from error


class Page:
    """Standard output; on a terminal, control characters in lines are escaped."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._tail: Tail | None = None
        self._is_terminal = sys.stdout.isatty()

    def write(self, piece: Piece) -> None:
        """Write *piece*. If the previous piece ended inside a line that this one does not continue,
        that line is ended first.
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
        """Note a message before the span, whose bytes are not to be written."""
        self._sources.learn(host, batch, self._sources.decide(host, batch))

    def take(self, read: Read, delivered: Delivered) -> None:
        """Write the new lines of a message.

        Raises:
            BadMessage: it cannot be read, or does not continue what came before.
        """
        payload, batch = delivered.message.data, read.batch
        if batch is None:
            origin = origin_of(read.host, None)
            self._write(Piece(origin, None, payload + b"\n", 0, delivered.time_ns))
            return
        decision, data = read_new(self._sources, read.host, batch, payload)
        time_ns = batch.last_time_ns or delivered.time_ns
        for part in decision.ranges:
            wanted = data[part.start - batch.start : part.end - batch.start]
            origin = origin_of(read.host, batch)
            self._write(Piece(origin, batch, wanted, part.start, time_ns))
        self._sources.learn(read.host, batch, decision, sequence=delivered.sequence)

    def passed(self, delivered: Delivered) -> None:
        """Flush, so that a reader behind a pipe sees the lines."""
        self.sequence = delivered.sequence
        sys.stdout.flush()

    def commit(self) -> None:
        """Do nothing: lines are printed at once."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _write(self, piece: Piece) -> None:
        self._page.write(piece)
        self.lines += piece.data.count(b"\n")
