"""Processes that replace the files of one table, as a model to be searched: they merge files, erase
lines and remove hours that are over, each beside the others and beside a writer of batches, freeze,
sleep for too long and die; a clean-up removes leftovers. `Upkeep`, `Erasure` and the commit of
`DeltaLog` themselves run. A process that does not take its next step is frozen, or dead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa

from logpipeline_spark.errors import Damaged
from logpipeline_spark.formats.delta import SAID
from logpipeline_spark.formats.log import Change
from logpipeline_spark.table import erasure, upkeep
from logpipeline_spark.table.compaction import Merge, Sizes
from logpipeline_spark.table.erasure import Condition, Erasure, Found
from logpipeline_spark.table.files import LINES, FileEntry, compacted_name, end_of, folder_of
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.upkeep import Limits, Upkeep
from logpipeline_spark.table.writer import COUNTS
from protocol.lake import (
    LONG_AGO,
    EffectLog,
    EffectStorage,
    actions_of,
    commits_alike,
    log_folder,
    steps_of_processes,
)
from protocol.replay import Asked, Do, Ended, Raised, Request

OLD, YOUNG = f"{LINES}/dt=2026-11-25/hour=10", f"{LINES}/dt=2026-11-25/hour=11"
NOW = end_of(YOUNG) + timedelta(hours=1)
# Only the older hour is beyond it.
LIMITS = Limits(age=timedelta(hours=1, minutes=30))
# The first message that comes later; those before it are in the table from the beginning.
LATER = 10
# How a process may end without a defect: others are faster, or it was asleep for too long.
REFUSED = ("Conflict", "Overtaken", "Late", "Refused", "Damaged")
Log = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment: the log's versions; the files that exist, each with its messages and
    who wrote it; the processes' results (None: not started); those that slept for too long since
    they began to write, and how often one did.
    """

    log: Log
    files: frozenset[tuple[str, frozenset[int], int]]
    processes: tuple[tuple[Any, ...] | None, ...]
    slept: frozenset[int] = frozenset()
    sleeps: int = 0

    def held(self) -> dict[str, frozenset[int]]:
        """Return the messages of each file that exists."""
        return {path: messages for path, messages, _ in self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: what each process does, how often one sleeps for too long, in how many hours
    there are files, and which messages are to be erased.
    """

    processes: tuple[str, ...]
    sleeps: int = 0
    hours: int = 2
    erased: frozenset[int] = frozenset({1, 3})


class _Log(EffectLog):
    """The log, as the product reads it to replace files."""

    def transaction(self) -> int | None:
        self.looked_at()
        return 1

    def files(self) -> list[FileEntry]:
        return [entry_of(path) for path in sorted(named(self._do("log", LINES)))]

    def schema(self) -> pa.Schema | None:
        return pa.schema([])

    def _table(self) -> Any:
        versions = self._do("log", LINES)
        paths = sorted(path.removeprefix(f"{LINES}/") for path in named(versions))
        return SimpleNamespace(
            version=lambda: len(versions) - 1,
            get_add_actions=lambda flatten: {"path": pa.array(paths, pa.string())},
        )


class _NoLog:
    """The log of an area without files."""

    def transaction(self) -> int | None:
        return None

    def files(self) -> list[FileEntry]:
        return []


def entry_of(path: str) -> FileEntry:
    """Return the file at *path* as a log has it; all are small, and of their hour."""
    at_us = int(end_of(folder_of(path)).timestamp() * 1_000_000) - 1
    return FileEntry(path, 1, 1, at_us, at_us)


@dataclass(frozen=True, slots=True)
class Replacing:
    """The model, within *bounds*."""

    bounds: Bounds
    asked: Asked = field(default_factory=Asked)
    checked: dict[Any, str] = field(default_factory=dict)

    def first(self) -> World:
        """Return the world with two files in each hour, of one message each."""
        paths = [f"{hour}/{name}.parquet" for hour in (OLD, YOUNG)[: self.bounds.hours]
                 for name in "ab"]  # fmt: skip
        files = frozenset((path, frozenset({n}), -1) for n, path in enumerate(paths, 1))
        return World((_version(paths),), files, (None,) * len(self.bounds.processes))

    # -- promises

    def wrong(self, world: World) -> str:
        """Return which promise does not hold."""
        what = (world.log, world.files)
        if what not in self.checked:
            self.checked[what] = _wrong(world, self.bounds.erased)
        return self.checked[what]

    # -- steps

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield each step that may come next."""
        needed = named(world.log)
        for file in world.files:
            if file[2] in world.slept and file[0] not in needed:
                without = replace(world, files=world.files - {file})
                yield f"a clean-up removes what process {file[2]} wrote", without
        yield from steps_of_processes(world, self._next, self._effects, refused=REFUSED)

    def _next(self, number: int, results: tuple[Any, ...]) -> Request | Ended:
        work, has_sleep = _WORK[self.bounds.processes[number]], bool(self.bounds.sleeps)
        return self.asked.next_effect(number, lambda do: _run(do, number, work, has_sleep), results)

    def _effects(
        self, world: World, number: int, request: Request
    ) -> Iterator[tuple[str, World, Any]]:
        match request:
            case ("log", _):
                yield "reads the log", world, world.log
            case ("read", (path,)):
                version = _number_of(path)
                is_there = version < len(world.log)
                yield f"reads version {version}", world, world.log[version] if is_there else None
            case ("put", (path, data)):
                version = _number_of(path)
                if version < len(world.log):
                    yield f"comes too late for version {version}", world, False
                else:
                    assert version == len(world.log), f"version {version} follows {len(world.log)}"
                    after = replace(world, log=(*world.log, data))
                    yield f"writes version {version}", after, True
            case ("rewrite", (path, sources, is_erasure)):
                held = world.held()
                if any(name not in held for name in sources):
                    yield "finds a file gone", world, Raised(Damaged, "gone")
                    return
                messages = frozenset().union(*(held[name] for name in sources))
                messages -= self.bounds.erased if is_erasure else frozenset()
                files = world.files | {(path, messages, number)} if messages else world.files
                yield f"writes {sorted(messages)}", replace(world, files=files), bool(messages)
            case ("new", (path, message)):
                files = world.files | {(path, frozenset({message}), number)}
                yield f"writes {message}", replace(world, files=files), None
            case ("holds", (path,)):
                found = world.held().get(path, frozenset()) & self.bounds.erased
                yield f"reads {path[-20:]}", world, len(found)
            case ("sleep", ()):
                # What it wrote before, it does not commit any more.
                awake = replace(world, slept=world.slept - {number})
                yield "goes on", awake, False
                if world.sleeps < self.bounds.sleeps:
                    slept = world.slept | {number}
                    slept_once = replace(world, slept=slept, sleeps=world.sleeps + 1)
                    yield "sleeps for hours", slept_once, True


Work = Callable[[Do, int, Storage, dict[str, Any]], None]


def _run(do: Do, number: int, work: Work, has_sleep: bool) -> None:
    """Do *work* as a process of its own does."""
    storage = cast(Storage, EffectStorage(do))
    logs: dict[str, Any] = {LINES: _Log(storage, LINES, do), **dict.fromkeys(COUNTS, _NoLog())}

    def now(zone: Any) -> datetime:
        # Files that were begun hours ago: the process slept since.
        return datetime.now(zone) - (LONG_AGO if has_sleep and do("sleep") else timedelta())

    clock = SimpleNamespace(now=now, fromtimestamp=datetime.fromtimestamp)
    with (
        commits_alike(number),
        patch.object(upkeep, "datetime", clock),
        patch.object(erasure, "datetime", clock),
    ):
        work(do, number, storage, logs)


def _merge(do: Do, number: int, storage: Storage, logs: dict[str, Any]) -> None:
    written = 0

    def write(self: Upkeep, area: str, merge: Merge, sizes: Sizes) -> list[FileEntry]:
        nonlocal written
        written += 1
        path = f"{merge.folder}/{compacted_name(number=f'{number:032x}', part=written)}"
        do("rewrite", path, tuple(each.path for each in merge.sources), False)
        return [entry_of(path)]

    with patch.object(Upkeep, "_written", write):
        Upkeep(storage, logs).compact(NOW)


def _erase(do: Do, number: int, storage: Storage, logs: dict[str, Any]) -> None:
    written = 0

    def found(self: Erasure, entries: Iterable[FileEntry]) -> Iterator[Found]:
        for entry in entries:
            if lines := do("holds", entry.path):
                yield Found(entry, lines, lines)

    def rewritten(self: Erasure, found: Found, schema: pa.Schema) -> tuple[FileEntry, ...]:
        nonlocal written
        written += 1
        name = compacted_name(number=f"{number:032x}", part=written)
        path = f"{folder_of(found.entry.path)}/{name}"
        is_any = do("rewrite", path, (found.entry.path,), True)
        return (entry_of(path),) if is_any else ()

    with patch.object(Erasure, "_found", found), patch.object(Erasure, "_rewritten", rewritten):
        Erasure(storage, logs, Condition(host="h"))._committed()


def _retain(do: Do, number: int, storage: Storage, logs: dict[str, Any]) -> None:
    Upkeep(storage, logs).retain(NOW, LIMITS)


def _write(do: Do, number: int, storage: Storage, logs: dict[str, Any]) -> None:
    message = LATER + number
    path = f"{OLD}/{message}.parquet"
    logs[LINES].transaction()
    do("new", path, message)
    change = Change(operation="WRITE", added=[entry_of(path)], transaction=message)
    logs[LINES].commit(change)


_WORK: dict[str, Work] = {"merge": _merge, "erase": _erase, "retain": _retain, "write": _write}


def _wrong(world: World, erased: frozenset[int]) -> str:
    """Return what is wrong with the last version of the log, or an empty text."""
    held = world.held()
    after = named(world.log)
    for path in after:
        if path not in held:
            return f"the log names {path[-40:]}, which was removed"
    if len(world.log) == 1:
        return ""
    twice, found = _messages(held, after)
    if twice:
        return f"message {twice} is twice in the table"
    before_paths = named(world.log[:-1])
    if any(path not in held for path in before_paths):
        return ""  # it was looked at when they were there
    _, before = _messages(held, before_paths)
    info = actions_of(world.log[-1])[0]["commitInfo"]
    match info["operation"]:
        case "OPTIMIZE":
            wanted = before
        case "WRITE":
            wanted = before | found
        case _ if "erased_lines" in info[SAID]:
            wanted = before - erased
        case _:
            # A batch that came when the files were chosen stays.
            gone = _messages(held, [path for path in before_paths if path.startswith(OLD)])[1]
            wanted = before - {each for each in gone if each < LATER or each not in found}
    if found != wanted:
        return f"{info['operation']} makes {sorted(found)} of {sorted(before)}"
    return ""


def _messages(held: dict[str, frozenset[int]], paths: Iterable[str]) -> tuple[int, frozenset[int]]:
    """Return a message that is in two of the files (0: none is), and all messages."""
    seen: set[int] = set()
    for path in paths:
        if both := seen & held[path]:
            return min(both), frozenset(seen)
        seen |= held[path]
    return 0, frozenset(seen)


@lru_cache(maxsize=100_000)
def named(log: Log) -> frozenset[str]:
    """Return the files of the last version of *log*."""
    if not log:
        return frozenset()
    actions = actions_of(log[-1])
    removed = {f"{LINES}/{each['remove']['path']}" for each in actions if "remove" in each}
    added = {f"{LINES}/{each['add']['path']}" for each in actions if "add" in each}
    return (named(log[:-1]) - removed) | added


def _version(paths: Sequence[str]) -> bytes:
    actions: list[Any] = [{"commitInfo": {"operation": "WRITE", SAID: {}}}]
    actions += [{"add": {"path": path.removeprefix(f"{LINES}/")}} for path in paths]
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def _number_of(path: str) -> int:
    assert path.startswith(log_folder(LINES)), path
    return int(path[-25:-5])
