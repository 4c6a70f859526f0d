"""The contract of sinks as a suite of tests: seeded random sequences of writes, commits, crashes
and power cuts against any implementation, beside a model that says what must be there.

It sees an implementation through `Implementation` alone. A sequence that breaks the contract raises
`ContractBroken`, which names the seed and the steps.
"""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

from logpipeline.deduplication import NOTHING, Range, SourceState, decide, decode
from logpipeline.records import Reached, StreamPosition
from logpipeline.wire import Batch
from logpipeline_collector.sink import (
    LocalCommit,
    Sink,
    SinkBusy,
    SinkFull,
    SourceName,
    Storage,
)

PARTITION = 3
STEPS = 40
NS = 1795255200_000000000
HOSTS = ("h", "other")
SOURCES = ("/var/log/a.log", "/var/log/b.log")
GENERATION = "0" * 16
# Steps between the parts of a commit at which a process dies.
DEATHS_MAX = 6


class ContractBroken(AssertionError):
    """An implementation does not do what `logpipeline_collector.sink` says."""


class Died(BaseException):
    """Raised in the midst of a commit, where a process dies."""


class Implementation(Protocol):
    """One implementation of sinks, and what a test needs beside the contract itself."""

    def storage(self, folder: Path) -> Storage:
        """Return the storage in *folder*, as a new process makes it."""

    def listed(self, folder: Path) -> dict[SourceName, bytes]:
        """Return what other programs see of each source, the empty source for foreign messages."""

    def leftover_bytes(self, folder: Path) -> int:
        """Return how many bytes lie in *folder* that are not committed and not being written."""

    def succession(self, folder: Path) -> tuple[int, str]:
        """Return what `Sink.keep_succession` stored last."""

    def full(self) -> AbstractContextManager[None]:
        """Let the disk have no room within the block, or only for a part of what is written."""

    def dying(self, step: int) -> AbstractContextManager[None]:
        """Raise `Died` at the *step*-th place between the parts of a commit within the block."""


def check(
    implementation: Implementation, base: Path, seeds: Iterable[int], *, steps: int = STEPS
) -> None:
    """Run one sequence for each of *seeds*, in folders below *base*.

    Raises:
        ContractBroken: the implementation does not keep the contract.
    """
    for seed in seeds:
        with _recorded_syncs() as synced:
            _Sequence(implementation, base / str(seed), seed, synced).run(steps)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit holds."""

    commit: LocalCommit | None = None
    lines: dict[SourceName, bytes] = field(default_factory=dict)
    sources: dict[SourceName, SourceState] = field(default_factory=dict)


@dataclass(slots=True)
class Pending:
    """A commit that is under way: its arguments, and what it will hold."""

    after: Committed
    mark: Any
    changed: dict[SourceName, SourceState | None]

    def run(self, sink: Sink[Any]) -> None:
        """Commit."""
        assert self.after.commit is not None
        sink.commit(self.after.commit, self.mark, self.changed)


class _Sequence:
    """One sink under random steps, and the model of it."""

    def __init__(
        self, implementation: Implementation, base: Path, seed: int, synced: dict[Inode, int]
    ) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.steps: list[str] = []
        self.implementation = implementation
        self.base = base
        self.synced = synced
        self.lives = 0
        self.folder = base / "0"
        self.folder.mkdir(parents=True)
        self.now = Committed()
        # What `undo` goes back to, while the group may not know of the last commit.
        self.before: Committed | None = None
        self.written: list[tuple[SourceName, bytes]] = []
        self.known: dict[SourceName, SourceState] = {}
        self.succession = (0, "")
        self.sequence = 0
        self.now_s = NS / 1e9
        self.sink = implementation.storage(self.folder).open(PARTITION)

    def run(self, steps: int) -> None:
        """Do *steps* steps, and check after each of them."""
        try:
            self._check("after the first opening")
            for _ in range(steps):
                step = self.random.choice(self._possible())
                self.steps.append(step.__name__.strip("_"))
                step()
                self._check("after the last step")
        finally:
            self.sink.close()

    def _possible(self) -> list[Callable[[], None]]:
        steps = [self._write] * 6 + [self._write_foreign, self._discard, self._reopen]
        steps += [self._crash, self._cut_power, self._write_without_room, self._open_twice]
        if self.before is not None:
            return [*steps, *[self._confirm] * 4, self._undo, self._undo]
        steps += [self._commit] * 4 + [self._commit_while_writing] * 2 + [self._forget_a_source]
        steps += [self._die_in_commit] * 2 + [self._commit_without_room, self._keep_succession]
        steps += [self._maintain, self._rotate]
        return steps if self.written else [*steps, self._set_aside]

    # Steps.

    def _write(self) -> None:
        name, batch, data, ranges = self._message()
        self.sink.write(name[0], batch, data, ranges, NS)
        self._note_written(name, batch, data, ranges)

    def _note_written(
        self, name: SourceName, batch: Batch, data: bytes, ranges: tuple[Range, ...]
    ) -> None:
        parts = [data[part.start - batch.start : part.end - batch.start] for part in ranges]
        self.written.append((name, b"".join(parts)))
        self.known[name] = decide(self.known.get(name, NOTHING), batch).after

    def _message(self) -> tuple[SourceName, Batch, bytes, tuple[Range, ...]]:
        name = (self.random.choice(HOSTS), self.random.choice(SOURCES))
        lines = [self._line() for _ in range(self.random.randint(1, 4))]
        known = self.known.get(name, NOTHING)
        start = known.generations[-1].high if known.generations else 0
        data = b"".join(lines)
        batch = Batch(
            source=name[1],
            generation=GENERATION,
            start=start,
            end=start + len(data),
            lines=len(lines),
            format="plain",
        )
        # Of a batch that overlaps with what is known, only a part is new.
        first = self.random.randrange(len(lines))
        begun = start + sum(map(len, lines[:first]))
        ranges: tuple[Range, ...] = (Range(begun, batch.end, False),)
        if first and self.random.random() < 0.5:
            ranges = (Range(start, start + len(lines[0]), True), *ranges)
        return name, batch, data, ranges

    def _line(self) -> bytes:
        self.sequence += 1
        return b"line %d %s\n" % (self.sequence, b"x" * self.random.randint(0, 20))

    def _write_foreign(self) -> None:
        host, line = self.random.choice(HOSTS), self._line()
        self.sink.write_foreign(host, line[:-1], NS)
        self.written.append(((host, ""), line))

    def _write_without_room(self) -> None:
        name, batch, data, ranges = self._message()
        with self.implementation.full():
            try:
                self.sink.write(name[0], batch, data, ranges, NS)
            except SinkFull:
                return
        # A sink may notice at the commit only.
        self._note_written(name, batch, data, ranges)

    def _commit(self) -> None:
        pending = self._prepare()
        pending.run(self.sink)
        self._committed(pending)

    def _commit_while_writing(self) -> None:
        pending = self._prepare()
        self._write()
        written, known = self.written, dict(self.known)
        pending.run(self.sink)
        self._committed(pending)
        self.written, self.known = written, known

    def _forget_a_source(self) -> None:
        if self.known:
            del self.known[self.random.choice(sorted(self.known))]
        self._commit()

    def _commit_without_room(self) -> None:
        pending = self._prepare()
        with self.implementation.full(), suppress(SinkFull):
            pending.run(self.sink)
            self._committed(pending)
            return
        self._check_committed("after a commit that found no room")
        pending.run(self.sink)
        self._committed(pending)

    def _die_in_commit(self) -> None:
        pending = self._prepare()
        try:
            with self.implementation.dying(self.random.randint(1, DEATHS_MAX)):
                pending.run(self.sink)
        except Died:
            self._leave(pending.after, is_power_cut=self.random.random() < 0.5)
            last = self.sink.last()
            if last is not None and last == pending.after.commit:
                self._committed(pending)
                return
            self._go_back_to(self.now)
        else:
            self._committed(pending)

    def _prepare(self) -> Pending:
        last = self.now.commit
        since = Reached(StreamPosition("then", 0, 0), 0)
        commit = LocalCommit(
            number=last.number + 1 if last is not None else 1,
            epoch=self.lives + 1,
            position=StreamPosition("then", self.sequence, NS + self.sequence),
            rollbacks=0,
            previous=(last.epoch, last.reached) if last is not None else (self.lives + 1, since),
        )
        lines = dict(self.now.lines)
        for name, data in self.written:
            lines[name] = lines.get(name, b"") + data
        changed: dict[SourceName, SourceState | None] = dict.fromkeys(self.now.sources)
        changed |= self.known
        after = Committed(commit, lines, dict(self.known))
        mark = self.sink.mark()
        self.written = []
        return Pending(after, mark, changed)

    def _committed(self, pending: Pending) -> None:
        self.before, self.now = self.now, pending.after
        self._go_on_from(self.now)

    def _confirm(self) -> None:
        self.sink.confirm()
        self.before = None

    def _undo(self) -> None:
        assert self.before is not None
        self.sink.undo()
        self._go_back_to(self.before)
        self._check_settled("after undo")

    def _discard(self) -> None:
        self.sink.discard()
        self._go_back_to(self.now, is_settled=False)
        self._check_settled("after discard")

    def _reopen(self) -> None:
        self.sink.close()
        self._open()

    def _crash(self) -> None:
        self._leave(is_power_cut=False)
        self._go_back_to(self.now, is_settled=False)

    def _cut_power(self) -> None:
        self._leave(is_power_cut=True)
        self._go_back_to(self.now, is_settled=False)

    def _leave(self, after: Committed | None = None, *, is_power_cut: bool) -> None:
        """Go on in a copy of what a process leaves that dies now, perhaps after the commit *after*,
        which it was making.
        """
        self.lives += 1
        left = self.base / str(self.lives)
        _copy(self.folder, left, self.synced, is_power_cut=is_power_cut)
        listed = self.implementation.listed(left)
        if listed not in (self.now.lines, after.lines if after is not None else self.now.lines):
            self._fail(f"after a death, the list holds {listed}, not {self.now.lines}")
        self.sink.close()
        self.folder = left
        self._open()

    def _open(self) -> None:
        storage = self.implementation.storage(self.folder)
        if storage.partitions() != [PARTITION]:
            self._fail(f"partitions are {storage.partitions()}")
        self.sink = storage.open(PARTITION)
        self._go_back_to(self.now, is_settled=False)
        self._check_leftovers("after an opening")

    def _open_twice(self) -> None:
        with suppress(SinkBusy):
            self.implementation.storage(self.folder).open(PARTITION).close()
            self._fail("two have the partition open")

    def _keep_succession(self) -> None:
        self.succession = (self.lives, f"said {self.sequence}")
        self.sink.keep_succession(*self.succession)

    def _maintain(self) -> None:
        self.now_s += 1
        self.sink.maintain(self.now_s)

    def _rotate(self) -> None:
        self.now_s += 1
        if self.sink.is_rotation_due(self.now_s):
            self.sink.rotate(self.now_s)

    def _set_aside(self) -> None:
        self.now_s += 1
        self.sink.set_aside(self.now_s)

    # The model.

    def _go_back_to(self, committed: Committed, *, is_settled: bool = True) -> None:
        self.now = committed
        self.written = []
        if is_settled:
            self.before = None
        self._go_on_from(committed)

    def _go_on_from(self, committed: Committed) -> None:
        self.known = dict(committed.sources)

    def _check(self, when: str) -> None:
        self._check_committed(when)
        if self.written and not self.sink.dirty_bytes:
            self._fail(f"{when}: something was written, and dirty_bytes is 0")

    def _check_settled(self, when: str) -> None:
        if self.sink.dirty_bytes:
            self._fail(f"{when}: dirty_bytes is {self.sink.dirty_bytes}")
        self._check_leftovers(when)

    def _check_leftovers(self, when: str) -> None:
        if left := self.implementation.leftover_bytes(self.folder):
            self._fail(f"{when}: {left} bytes are left that are not committed")

    def _check_committed(self, when: str) -> None:
        last, wanted = self.sink.last(), self.now.commit
        if _settled(last) != _settled(wanted):
            self._fail(f"{when}: the last commit is {last}, not {wanted}")
        if self.before is not None and (last is None or last.previous is None):
            self._fail(f"{when}: a commit that is not confirmed cannot be taken back")
        if self.sink.sources() != self.now.sources:
            self._fail(f"{when}: sources are {self.sink.sources()}, not {self.now.sources}")
        rows = {tuple(json.loads(k)): decode(json.loads(v)) for k, v in self.sink.source_rows()}
        if rows != self.now.sources:
            self._fail(f"{when}: rows of sources are {rows}, not {self.now.sources}")
        if (told := self.implementation.succession(self.folder)) != self.succession:
            self._fail(f"{when}: the succession is {told}, not {self.succession}")
        listed = self.implementation.listed(self.folder)
        for name in listed.keys() | self.now.lines.keys():
            found, meant = listed.get(name, b""), self.now.lines.get(name, b"")
            if found != meant:
                self._fail(f"{when}: {name} holds {found!r}, not {meant!r}")

    def _fail(self, what: str) -> None:
        raise ContractBroken(f"{what}\nseed {self.seed}, steps: {', '.join(self.steps)}")


def _settled(commit: LocalCommit | None) -> LocalCommit | None:
    return commit._replace(previous=None) if commit is not None else None


# A power cut.

Inode = tuple[int, int]


@contextmanager
def _recorded_syncs() -> Iterator[dict[Inode, int]]:
    """Note how long each file was when it was last made durable."""
    synced: dict[Inode, int] = {}

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            synced[status.st_dev, status.st_ino] = status.st_size

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "fdatasync", sync, raising=False)
        yield synced


def _copy(folder: Path, target: Path, synced: dict[Inode, int], *, is_power_cut: bool) -> None:
    """Copy *folder* with its hard links; of a power cut, only the bytes that were made durable.
    SQLite makes its own files durable, without Python.
    """
    copies: dict[Inode, Path] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        copy = target / path.relative_to(folder)
        inode = _inode(path)
        if path.is_dir():
            copy.mkdir(parents=True)
        elif inode in copies:
            os.link(copies[inode], copy)
        else:
            data = path.read_bytes()
            if is_power_cut and ".sqlite" not in path.name:
                data = data[: synced.get(inode, 0)]
            copy.write_bytes(data)
            synced[_inode(copy)] = synced.get(inode, 0)
            copies[inode] = copy


def _inode(path: Path) -> Inode:
    status = path.lstat()
    return status.st_dev, status.st_ino
