"""What processes around one table know of each other, and what a reader may find at most and must
find at least by that.

Whoever changes the table says before what it means to do, and after that it is done. So each query
has bounds that do not depend on who is faster.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap

from tables.erased import HOSTS
from tables.made import LIFE, STREAM

# Messages of a batch; a query sees all of them or none.
BATCH = 35
IDXS = (0, 1)
# Of what is wrong with one query, so much is said.
SHOWN_MAX = 5
NUMBER_BYTES = 8

Row = tuple[str, str, int, int, str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of a table at one moment. The messages up to *committed* are committed; those up
    to *cut_meant* are being taken out by retention, and those up to *cut_done* are out. Of each of
    `HOSTS` the messages up to *meant* are being erased, and those up to *done* are erased.

    So many erasures without grace were *harsh_begun* and *harsh_ended*.
    """

    committed: int
    cut_meant: int
    cut_done: int
    meant: tuple[int, ...]
    done: tuple[int, ...]
    harsh_begun: int
    harsh_ended: int

    def stays(self, seq: int) -> bool:
        """Tell whether nobody means to remove the message *seq*."""
        return seq > max(self.cut_meant, self.meant[seq % len(HOSTS)])

    def is_gone(self, seq: int) -> bool:
        """Tell whether the message *seq* was removed."""
        return seq <= max(self.cut_done, self.done[seq % len(HOSTS)])


def may_fail(before: Facts, after: Facts) -> bool:
    """Tell whether files may have gone under a query: that is what an erasure without grace is."""
    return after.harsh_begun > before.harsh_ended


def complaints(found: Sequence[Row], before: Facts, after: Facts) -> list[str]:
    """Return what is wrong with the rows that a query *found*; it began after *before* was true and
    ended before *after* was.
    """
    keys = {row[:4] for row in found}
    said = []
    if len(keys) < len(found):
        twice = [row[:4] for row in sorted(found)]
        doubled = [one for one, other in itertools.pairwise(twice) if one == other]
        said.append(f"{len(doubled)} lines twice: {doubled[:SHOWN_MAX]}")
    strange = [row for row in found if row != row_of(row[2], row[3])]
    if strange:
        said.append(f"{len(strange)} rows that were never written: {strange[:SHOWN_MAX]}")
    seqs = {row[2] for row in found}
    back = sorted(seq for seq in seqs if before.is_gone(seq))
    if back:
        said.append(f"{len(back)} messages that were removed are seen: {back[:SHOWN_MAX]}")
    # A batch is there as a whole; a message that is there tells that its batch is.
    end = max([before.committed, *(-(-seq // BATCH) * BATCH for seq in seqs)])
    must = [seq for seq in range(after.cut_meant + 1, end + 1) if after.stays(seq)]
    # Of an erasure, or of retention, a query sees the whole or nothing.
    for number in range(len(HOSTS)):
        first = min((seq for seq in seqs if seq % len(HOSTS) == number), default=end + 1)
        must += [seq for seq in range(first, end + 1) if seq % len(HOSTS) == number]
    lacking = sorted({seq for seq in must if any(key_of(seq, idx) not in keys for idx in IDXS)})
    if lacking:
        said.append(f"{len(lacking)} messages of {end} lack lines: {lacking[:SHOWN_MAX]}")
    return said


def key_of(seq: int, idx: int) -> tuple[str, str, int, int]:
    """Return the key of a line."""
    return STREAM, LIFE, seq, idx


def row_of(seq: int, idx: int) -> Row:
    """Return what each reader finds of a line."""
    return STREAM, LIFE, seq, idx, HOSTS[seq % len(HOSTS)], f"hello {seq}.{idx} é"


class Board:
    """Numbers that the processes which are forked after it share; each is written by one of them at
    a time. *actors* may be busy.
    """

    def __init__(self, actors: Sequence[str], phases: Sequence[str]) -> None:
        names = ["stop", "committed", "cut_meant", "cut_done", "harsh_begun", "harsh_ended"]
        names += ["merges", "cleans", "cleans_waiting", "erasures", "excused"]
        for number in range(len(HOSTS)):
            names += [f"meant.{number}", f"done.{number}"]
        for actor in actors:
            names += [f"since.{actor}", f"phase.{actor}"]
            names += [f"{of}.{actor}.{phase}" for of in ("turns", "took") for phase in phases]
        self._places = {name: place for place, name in enumerate(names)}
        self._actors = tuple(actors)
        self._phases = tuple(phases)
        self._numbers = memoryview(mmap(-1, NUMBER_BYTES * len(names))).cast("q")

    def __getitem__(self, name: str) -> int:
        return int(self._numbers[self._places[name]])

    def __setitem__(self, name: str, value: int) -> None:
        self._numbers[self._places[name]] = value

    def reach(self, name: str, value: int) -> None:
        """Let a number that never falls be *value* at least."""
        self[name] = max(self[name], value)

    def facts(self) -> Facts:
        """Return what is true now. Numbers never fall: those read later may be too new, and what
        was meant is read last.
        """
        done = tuple(self[f"done.{number}"] for number in range(len(HOSTS)))
        cut_done, harsh_ended = self["cut_done"], self["harsh_ended"]
        committed = self["committed"]
        meant = tuple(self[f"meant.{number}"] for number in range(len(HOSTS)))
        return Facts(
            committed, self["cut_meant"], cut_done, meant, done, self["harsh_begun"], harsh_ended
        )

    @contextmanager
    def busy(self, actor: str, phase: str) -> Iterator[None]:
        """Say that *actor* is at work, for as long as the block lasts."""
        self[f"phase.{actor}"] = self._phases.index(phase)
        begun = time.monotonic_ns()
        self[f"since.{actor}"] = begun
        try:
            yield
        finally:
            # Who is killed in the block stays busy until its killer says otherwise.
            self.rest(actor)
            self[f"took.{actor}.{phase}"] = time.monotonic_ns() - begun
            self[f"turns.{actor}.{phase}"] += 1

    def rest(self, actor: str) -> None:
        """Say that *actor* does nothing."""
        self[f"since.{actor}"] = 0

    def phase_of(self, actor: str) -> str:
        """Return what *actor* does, empty where it does nothing."""
        return self._phases[self[f"phase.{actor}"]] if self[f"since.{actor}"] else ""

    def turns(self, actor: str, phase: str) -> int:
        """Return how often *actor* came to the end of *phase*."""
        return self[f"turns.{actor}.{phase}"]

    def took_s(self, actor: str, phase: str) -> float:
        """Return how long *phase* took last, 0 where it never came to an end."""
        return self[f"took.{actor}.{phase}"] / 1e9

    def oldest_s(self, but: str) -> float:
        """Return how long ago the oldest work of all *but* one began that is not done yet."""
        since = [self[f"since.{actor}"] for actor in self._actors if actor != but]
        return max(((time.monotonic_ns() - begun) / 1e9 for begun in since if begun), default=0.0)
