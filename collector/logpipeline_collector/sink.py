"""Where a collector puts lines: the contract between the part that decides which bytes of a message
are new (`partition_writer`) and the part that stores them (today `files`, in a folder).

A `Storage` belongs to one collector, and opens one `Sink` a partition. A sink stores three things
that must agree at any moment, also after a crash: the lines, what is known of their sources, and
the position in the stream up to which both are complete. They move together, by a commit:

    write, write, …          may be lost by a crash; no reader sees it
    mark                     what is written from here on belongs to the next commit
    commit(…, mark, …)       durable and final in this sink; `undo` can still take it back
    confirm                  the group's record says the same; `undo` is not called any more

What a sink guarantees:

* **A line is stored once.** A sink stores what `write` gives it. The caller writes no byte twice,
  except after `undo`, `discard` or a new opening, when it reads again from the position of `last`.
* **Opening takes back** all that was written and not committed, however the process before ended.
  So does `discard`, which a collector calls when its epoch is over (it was fenced).
* **Other programs see commits only.** What they list (for files: `files.committed`) is what the
  last commit holds: nothing that was written after its mark, and nothing that was taken back. They
  may list while the sink is open.
* **Order.** Lines of one source stand in the order in which they were written.
* **Errors.** `SinkFull` leaves everything as it was, and the same call may be repeated. After
  `SinkFailed` nothing that the sink says can be relied on: the process ends, and the next opening
  begins from the last commit.

Threads: `commit`, `rotate`, `maintain`, `set_aside` and `keep_succession` may block for long, and
run in a thread of their own, one at a time. `write`, `write_foreign`, `mark`, `confirm` and
`is_rotation_due` run in the caller's thread, also while one of the others runs. `undo`, `discard`
and `close` run when nothing else does.

The contract is tested by `tests/support/components/sink_contract.py`, which runs against any
implementation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.deduplication import Range, SourceState
from logpipeline.records import Reached, StreamPosition
from logpipeline.wire import Batch

SourceName = tuple[str, str]
"""Host and source."""

FOR_ROOM = "disk"
"""The reason of a removal before the age that a user asked for: too little of the disk is free."""

Mark = TypeVar("Mark")


@dataclass(slots=True)
class Removed:
    """What retention removed since an opening: bytes on the disk, by reason, and when it last
    removed something for room on the disk (seconds since 1970).
    """

    bytes: dict[str, int] = field(default_factory=lambda: {"age": 0, "size": 0, FOR_ROOM: 0})
    for_room_s: float = -math.inf

    def add(self, reason: str, size: int, now_s: float) -> None:
        """Count *size* bytes that were removed at *now_s*."""
        self.bytes[reason] += size
        if reason == FOR_ROOM:
            self.for_room_s = now_s


class SinkBusy(Exception):
    """Another process has this partition open."""


class SinkBroken(Exception):
    """What the sink holds cannot be read; the message says what to do."""


class SinkFailed(Exception):
    """The disk failed: what it reported as written may not be. The process has to end."""


class SinkFull(OSError):
    """There is no room. Nothing was done, and the same call may be repeated."""


class LocalCommit(NamedTuple):
    """The last commit of a sink; *previous* (epoch, and how far the stream was read) would be the
    last one without it. It is None where the commit cannot be taken back.
    """

    number: int
    epoch: int
    position: StreamPosition
    rollbacks: int
    previous: tuple[int, Reached] | None

    @property
    def reached(self) -> Reached:
        """How far the stream was read."""
        return Reached(self.position, self.rollbacks)

    def encode(self) -> str:
        """Return the commit as JSON."""
        previous: tuple[Any, ...] | None = None
        if self.previous is not None:
            epoch, before = self.previous
            # Older programs read the first two.
            previous = (epoch, _list(before.position), before.rollbacks)
        return json_text.dump(
            (self.number, self.epoch, _list(self.position), self.rollbacks, previous)
        )

    @staticmethod
    def decode(text: str) -> LocalCommit:
        """Return the commit that `encode` wrote.

        Raises:
            ValueError, TypeError: *text* is not a commit.
        """
        number, epoch, position, rollbacks, previous = json_text.parse(text)
        before = None
        if previous is not None:
            epoch_before, position_before, *rest = previous
            rollbacks_before = rest[0] if rest else None
            before = (
                int(epoch_before),
                Reached(StreamPosition(*position_before), rollbacks_before),
            )
        return checked(LocalCommit(number, epoch, StreamPosition(*position), rollbacks, before))


def _list(position: StreamPosition) -> tuple[str, int, int]:
    return position.created, position.sequence, position.time_ns


class Sink(Protocol[Mark]):
    """The lines of one partition; see the module. A *Mark* is the sink's own note of how much was
    written.
    """

    @property
    def lines_written(self) -> int:
        """Lines that were written since the opening, committed or not."""

    @property
    def bytes_written(self) -> int:
        """Bytes that were written since the opening, committed or not."""

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written since the last `mark`."""

    @property
    def damaged_bytes(self) -> int:
        """Committed bytes that the disk or another program took away, since the first opening."""

    @property
    def newly_damaged_bytes(self) -> int:
        """Those of `damaged_bytes` that were found by this opening, and since."""

    @property
    def removed(self) -> Removed:
        """What retention removed since the opening."""

    def write(
        self, host: str, batch: Batch, data: bytes, ranges: tuple[Range, ...], time_ns: int
    ) -> None:
        """Write the *ranges* of *batch*, whose bytes are *data*: all of them, or none. *time_ns* is
        the time of lines that carry none.

        Raises:
            SinkFull: nothing was written.
            SinkFailed: the disk failed.
        """

    def write_foreign(self, host: str, payload: bytes, time_ns: int) -> None:
        """Write the lines of a message without our headers.

        Raises:
            SinkFull: nothing was written.
            SinkFailed: the disk failed.
        """

    def mark(self) -> Mark:
        """Return a mark behind all that was written. It is committed before the next one is made,
        or dropped by `discard`, `undo` or `close`.
        """

    def commit(
        self, commit: LocalCommit, mark: Mark, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """Make all that was written before *mark* durable, and with it *commit* and what changed in
        the knowledge of *sources* (None: forget the source). When this returns, a power cut takes
        nothing of it away; if the process dies before, either all of it is committed, or nothing.

        Raises:
            SinkFull: nothing is committed; the same call may be repeated.
            SinkFailed: the disk failed. It must not be repeated: the kernel reports a failed write
                once, and would report success then.
        """

    def confirm(self) -> None:
        """Note that the group knows of the last commit: what it holds may be changed by upkeep."""

    def undo(self) -> None:
        """Take back the last commit, which has a `LocalCommit.previous`, and all that was written
        after it. It is durable on return, and `last` is the commit before, which itself cannot be
        taken back any more. What `keep_succession` stored stays.
        """

    def discard(self) -> None:
        """Take back all that was written and not committed."""

    def last(self) -> LocalCommit | None:
        """Return the last commit; None where nothing was ever committed."""

    def sources(self) -> dict[SourceName, SourceState]:
        """Return the state of each source as of the last commit."""

    def source_rows(self) -> list[tuple[str, str]]:
        """Return `sources` in JSON: ``[host, source]`` and the encoded knowledge. There may be
        250,000: a snapshot takes the stored text, without a detour through objects.
        """

    def keep_succession(self, epoch: int, text: str) -> None:
        """Keep *text*, which says of *epoch* where the owners before it ended. It is durable on
        return; readers decide by it whether the last commit of another folder counts.

        Raises:
            SinkFull: there is no room for it.
        """

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether `rotate` would change something."""

    def rotate(self, now_s: float) -> None:
        """Do of `maintain` only what needs that everything written is committed."""

    def maintain(self, now_s: float) -> None:
        """Rotate, compress and remove what is due at *now_s* (seconds since 1970), a little at a
        time. Nothing is done while a commit is not confirmed: `undo` must find what it takes back.
        Committed lines stay readable, except those that retention removes.

        Raises:
            SinkFull: there is no room for it; what was due stays due.
            SinkFailed: the disk failed.
        """

    def set_aside(self, now_s: float) -> None:
        """Begin anew: what is written from now on stands apart from what is there, because another
        folder has lines that belong between the two. Everything written is committed.

        Raises:
            SinkFull: there is no room for it.
            SinkFailed: the disk failed.
        """

    def close(self) -> None:
        """Close the sink. What is not committed is taken back by the next opening."""


class Storage(Protocol):
    """Where one collector's lines are stored: a sink for each partition that it owns or owned."""

    @property
    def open_files(self) -> int:
        """Files, or connections, that are kept open for all partitions."""

    def partitions(self) -> list[int]:
        """Return the partitions of which something is stored, in order."""

    def open(self, partition: int) -> Sink[Any]:
        """Open the sink of *partition*, and undo the writes that were not committed.

        Raises:
            SinkBusy: another process has it open.
            SinkBroken: what is stored cannot be read; the message says what to do.
        """
