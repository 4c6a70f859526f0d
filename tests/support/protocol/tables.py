"""Writers of one table, as a model to be searched: they open it, write files, commit batches,
freeze, wake, sleep for too long and die; the stream grows and is made anew; a clean-up removes
leftovers. `TableWriter`, `States`, `Cover` and the commit of `DeltaLog` themselves run. A writer
that does not take its next step is frozen; one that never takes it is dead, and its successor
repeats its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from logpipeline_spark.formats.delta import APPLICATION
from logpipeline_spark.formats.log import AREAS
from logpipeline_spark.table import state as state_module
from logpipeline_spark.table.files import LINES, FileEntry, FileName, Range
from logpipeline_spark.table.state import STATE, Kept, States
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.writer import TableWriter
from protocol.lake import (
    LONG_AGO,
    EffectLog,
    EffectStorage,
    actions_of,
    commits_alike,
    log_folder,
    steps_of_processes,
)
from protocol.replay import Asked, Do, Ended, Request

STREAM, FOLDER = "LOGS_0", f"{LINES}/dt=2026-11-25/hour=10"
# How a writer may end without a defect: another one is at work, or it was asleep for too long.
REFUSED = ("Overtaken", "Held", "Late")


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment: the stream's incarnation and last sequence, the table's objects, its
    files of lines, the writers' results (None: not started), and those that slept for too long.
    """

    life: int = 1
    last: int = 0
    objects: tuple[tuple[str, bytes], ...] = ()
    files: frozenset[str] = frozenset()
    processes: tuple[tuple[Any, ...] | None, ...] = ()
    slept: frozenset[int] = frozenset()
    owner: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: writers, one after another or side by side, batches of each, messages in
    each incarnation of the stream, and incarnations.
    """

    writers: int = 2
    batches: int = 1
    messages: int = 1
    lives: int = 1
    sleeps: int = 0


class _Log(EffectLog):
    """The log, as a writer of batches reads it."""

    def transaction(self) -> int | None:
        return _transaction(self.looked_at())


@dataclass(frozen=True, slots=True)
class Table:
    """The model, within *bounds*."""

    bounds: Bounds
    asked: Asked = field(default_factory=Asked)
    checked: dict[Any, str] = field(default_factory=dict)

    def first(self) -> World:
        """Return the world with an empty table, and an empty stream."""
        return World(processes=(None,) * self.bounds.writers)

    # -- promises

    def wrong(self, world: World) -> str:
        """Return which promise does not hold."""
        what = (world.objects, world.files)
        if what not in self.checked:
            self.checked[what] = _wrong(world)
        return self.checked[what]

    # -- steps

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        if world.last < self.bounds.messages:
            yield "a message is stored", replace(world, last=world.last + 1)
        if world.life < self.bounds.lives and world.last:
            yield "the stream is made anew", replace(world, life=world.life + 1, last=0)
        named = {path for path, _, _ in _added(world)}
        for path, number in world.owner:
            if number in world.slept and path in world.files - named:
                without = replace(world, files=world.files - {path})
                yield f"a clean-up removes the file of writer {number}", without
        yield from steps_of_processes(world, self._next, self._effects, refused=REFUSED)

    def _next(self, number: int, results: tuple[Any, ...]) -> Request | Ended:
        return self.asked.next_effect(number, lambda do: _write(do, number, self.bounds), results)

    def _effects(
        self, world: World, number: int, request: Request
    ) -> Iterator[tuple[str, World, Any]]:
        objects = dict(world.objects)
        match request:
            case ("read", (path,)):
                yield f"reads {_short(path)}", world, objects.get(path)
            case ("list", (folder,)):
                found = tuple(path for path in objects if path.startswith(folder))
                yield f"lists {folder}", world, found
            case ("log", (area,)):
                yield f"reads the log of {area}", world, _versions(world, area)
            case ("put", (path, data)):
                if path in objects:
                    yield f"comes too late for {_short(path)}", world, False
                else:
                    put = tuple(sorted((objects | {path: data}).items()))
                    yield f"writes {_short(path)}", replace(world, objects=put), True
            case ("wait", ()):
                yield "waits for the former writer", world, None
            case ("stream", ()):
                yield "looks at the stream", world, (world.life, world.last)
            case ("file", (path,)):
                owner = (*world.owner, (path, number))
                files = world.files | {path}
                yield f"writes {_short(path)}", replace(world, files=files, owner=owner), None
            case ("sleep", ()):
                yield "goes on", world, False
                if len(world.slept) < self.bounds.sleeps:
                    slept = replace(world, slept=world.slept | {number})
                    yield "sleeps for hours", slept, True


def _write(do: Do, number: int, bounds: Bounds) -> None:
    """Do as the table's job does for one stream, with what it is made of."""
    storage = cast(Storage, EffectStorage(do))
    with commits_alike(number), patch.object(state_module, "uuid4", lambda: number):
        table = TableWriter.open(
            storage,
            {area: _Log(storage, area, do) for area in AREAS},
            pipeline="default/demo",
            subjects="logs",
            # As a job that is started again: it does not wait for the former process.
            holder="job",
            schema=pa.schema([]),
            wait=lambda seconds: do("wait"),
        )
        for batch in range(bounds.batches):
            life, last = do("stream")
            incarnation = f"{life}r0"
            end = table.state.cover.end_of(STREAM)
            first = end.last + 1 if end is not None and end.incarnation == incarnation else 1
            if first > last:
                return
            name = FileName(STREAM, incarnation, first, last, writer=table.writer)
            path = f"{FOLDER}/{name}"
            do("file", path)
            begun = datetime.now(UTC)
            if do("sleep"):
                begun -= LONG_AGO
            table.commit_batch(
                f"{table.writer}-{batch}",
                {STREAM: Range(incarnation, first, last)},
                [FileEntry(path, last - first + 1, 1, 1, 1)],
                {STREAM: Kept(None, {}, dict)},
                begun=begun,
            )


def _wrong(world: World) -> str:
    seen: dict[str, int] = {}
    lives: list[str] = []
    for path, first, last in _added(world):
        if path not in world.files:
            return f"the log names {_short(path)}, which was removed"
        life = FileName.parse(path.rpartition("/")[2]).incarnation
        if life in lives[:-1]:
            return f"incarnation {life} comes behind a later one"
        lives = lives if life in lives else [*lives, life]
        before = seen.get(life, 0)
        if first <= before:
            return f"message {first} of {life} is twice in the table"
        if first > before + 1:
            return f"message {before + 1} of {life} was passed over"
        seen[life] = last
    transactions = {area: _transaction(_versions(world, area)) or 0 for area in AREAS}
    if any(number > transactions[LINES] for number in transactions.values()):
        return "counts are ahead of lines"
    numbers = _numbers(_versions(world, LINES))
    if numbers != sorted(set(numbers)):
        return "a writer committed behind its successor"
    objects = dict(world.objects)
    storage = cast(Storage, SimpleNamespace(url="table", read=objects.get))
    state, _ = States(storage).load(transactions[LINES])
    covered = {each.incarnation: each.last for each in state.cover.read.get(STREAM, ())}
    if covered != seen:
        return f"the state says {covered}, and the files hold {seen}"
    return ""


def _added(world: World) -> Iterator[tuple[str, int, int]]:
    """Yield the files of lines in the log with the sequences that they hold, in order."""
    for body in _versions(world, LINES):
        for action in actions_of(body):
            if added := action.get("add"):
                path = f"{LINES}/{added['path']}"
                name = FileName.parse(path.rpartition("/")[2])
                yield path, name.first, name.last


def _versions(world: World, area: str) -> tuple[bytes, ...]:
    folder = log_folder(area)
    return tuple(body for path, body in world.objects if path.startswith(folder))


def _transaction(versions: Iterable[bytes]) -> int | None:
    numbers = _numbers(versions)
    return numbers[-1] if numbers else None


def _numbers(versions: Iterable[bytes]) -> list[int]:
    actions = (action for body in versions for action in actions_of(body))
    found = [action["txn"] for action in actions if "txn" in action]
    return [int(each["version"]) for each in found if each["appId"] == APPLICATION]


def _short(path: str) -> str:
    return path.rpartition("/")[2] if not path.startswith(STATE) else f"state {path[-12:-6]}"
