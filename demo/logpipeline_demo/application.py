"""A small busy application on many hosts: which source writes how much next, and when its file is
rotated.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logpipeline_demo.ledger import Ledger
from logpipeline_demo.source_files import FILES_MAX_DEFAULT
from logpipeline_demo.sources import LogSource
from logpipeline_demo.writer import LogWriter

CALL_LINES_MAX = 20
BURST_ONE_IN = 500
BURST_LINES = (500, 1500)
# A source now and then stops inside a line, and goes on when it is its turn again.
TORN_ONE_IN = 40
# So small that every source rotates several times a minute, and so large that a shipper that was
# down for half a minute still finds every line in the files that are kept.
ROTATE_BYTES_DEFAULT = 64 * 1024
LINES_BETWEEN_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the application treats its files."""

    rotate_bytes: int = ROTATE_BYTES_DEFAULT
    files_max: int | None = FILES_MAX_DEFAULT  # None: nothing is ever removed
    has_banners: bool = False  # plain files begin with the same line


class Application:
    """All sources, taking turns."""

    def __init__(
        self, sources: Sequence[LogSource], root: Path, ledger: Ledger, habits: Habits
    ) -> None:
        self.lines = 0
        self._ledger = ledger
        self._habits = habits
        self._rng = random.Random(f"{ledger.seed}/turns")
        kept, has_banner = habits.files_max, habits.has_banners
        writers = [
            LogWriter(source, root, ledger, files_max=kept, has_banner=has_banner)
            for source in sources
        ]
        self._rng.shuffle(writers)
        self._turns = deque(writers)
        ledger.flush()

    @property
    def banners(self) -> int:
        """How many files were begun with a line that all of them begin with."""
        return sum(writer.banners for writer in self._turns)

    @property
    def rotations(self) -> int:
        """How many files were rotated."""
        return sum(writer.rotations for writer in self._turns)

    def step(self, lines_max: int) -> int:
        """Write at least one line and at most about *lines_max*, bursts aside; return how many."""
        started = self.lines
        called: list[LogWriter] = []
        while self.lines - started < lines_max and len(called) < len(self._turns):
            writer = self._turns[0]
            self._turns.rotate(-1)
            lines = self._call_lines(lines_max - (self.lines - started))
            self.lines += lines
            writer.prepare(lines)
            called.append(writer)
        self._ledger.flush()
        for writer in called:
            writer.commit()
        for writer in called:
            self._afterwards(writer)
        return self.lines - started

    def burst(self) -> None:
        """Let the next source write a burst now."""
        lines = self._rng.randrange(*BURST_LINES)
        self._turns[0].write(lines)
        self.lines += lines

    def rotate(self) -> None:
        """Rotate every source's file now."""
        for writer in self._turns:
            self._rotate(writer)

    def close(self) -> None:
        """Finish every open line and close every file."""
        for writer in self._turns:
            writer.close()

    def _call_lines(self, lines_left: int) -> int:
        if self._rng.randrange(BURST_ONE_IN) == 0:
            return self._rng.randrange(*BURST_LINES)
        return min(self._rng.randrange(1, CALL_LINES_MAX + 1), lines_left)

    def _afterwards(self, writer: LogWriter) -> None:
        if writer.size >= self._habits.rotate_bytes:
            self._rotate(writer)
        elif self._rng.randrange(TORN_ONE_IN) == 0:
            self._tear(writer)

    def _tear(self, writer: LogWriter) -> None:
        text_bytes = len(writer.maker.line(writer.next_seq))
        if text_bytes < 2:
            return
        if self._rng.random() < 0.5:
            writer.write_partial(self._rng.randrange(1, text_bytes))
        else:
            writer.write_torn(1, self._rng.randrange(1, text_bytes))
        self.lines += 1

    def _rotate(self, writer: LogWriter) -> None:
        between = self._rng.randrange(LINES_BETWEEN_MAX + 1)
        self.lines += between
        if writer.source.kind == "cri":
            writer.rotate_kubelet(lines_between=between)
        else:
            writer.rotate_numbered(lines_between=between)
