"""What models of a table share: Delta's log and its storage, each call of which is an effect, and
the steps of the processes that call them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast
from unittest.mock import patch

import pyarrow as pa

from logpipeline_spark.formats import delta
from logpipeline_spark.formats.delta import LOG, DeltaLog
from logpipeline_spark.table.storage import Storage, Stored
from protocol.replay import Do, Ended, Request

Results = tuple[Any, ...]
W = TypeVar("W", bound="HasProcesses")

# A clean-up removes files that were begun so long ago, and that no version names.
LONG_AGO = timedelta(hours=2)


class EffectStorage:
    """A table's storage."""

    url = "table"

    def __init__(self, do: Do) -> None:
        self.do = do

    def check(self) -> None:
        """It lets one of two writers win."""

    def read(self, path: str) -> bytes | None:
        """Return the object at *path*."""
        found: bytes | None = self.do("read", path)
        return found

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the object at *path* if there is none."""
        return bool(self.do("put", path, data))

    def list(self, folder: str) -> Iterator[Stored]:
        """Yield the objects below *folder*."""
        for path in self.do("list", folder):
            yield Stored(path, 1, datetime(2026, 11, 25, tzinfo=UTC))

    def delete(self, paths: Iterable[str]) -> None:
        """Only a clean-up removes objects, and it is a step of the model."""
        raise AssertionError("a process removes nothing")


class EffectLog(DeltaLog):
    """Delta's log, which is read as delta-rs does, and committed to by the product."""

    def __init__(self, storage: Storage, area: str, do: Do) -> None:
        super().__init__(storage, area, ("dt", "hour"))
        self._do = do

    def begin(self, schema: pa.Schema, properties: Any) -> None:
        """It is there, and has no versions that a writer has seen."""
        self._looked = datetime.now(UTC)

    def looked_at(self) -> tuple[bytes, ...]:
        """Return all versions; the next commit follows the last of them."""
        versions: tuple[bytes, ...] = self._do("log", self._area)
        self._version, self._looked = len(versions) - 1, datetime.now(UTC)
        return versions


class HasProcesses(Protocol):
    """A world that is a dataclass with the results of its processes (None: not started)."""

    @property
    def processes(self) -> tuple[Results | None, ...]:
        """The results of each process."""


def steps_of_processes(
    world: W,
    next_of: Callable[[int, Results], Request | Ended],
    effects: Callable[[W, int, Request], Iterator[tuple[str, W, Any]]],
    *,
    refused: tuple[str, ...],
) -> Iterator[tuple[str, W]]:
    """Yield each step that a process of *world* may take: it begins, or what it asks for by
    *next_of* has one of its *effects*. It may end with an error of the kinds *refused*.
    """
    for number, results in enumerate(world.processes):
        if results is None:
            yield f"process {number} begins", _with(world, number, ())
            continue
        request = next_of(number, results)
        if isinstance(request, Ended):
            if request.error and not request.error.startswith(refused):
                raise AssertionError(f"process {number} ends: {request.error}")
            continue
        for text, after, result in effects(world, number, request):
            yield f"process {number} {text}", _with(after, number, (*results, result))


def _with(world: W, number: int, results: Results) -> W:
    processes = list(world.processes)
    processes[number] = results
    changed: W = replace(cast(Any, world), processes=tuple(processes))
    return changed


def log_folder(area: str) -> str:
    """Return the folder of the versions of *area*."""
    return f"{area}/{LOG}/"


# The same versions are read in most states of a search.
@lru_cache(maxsize=10_000)
def actions_of(body: bytes) -> tuple[Mapping[str, Any], ...]:
    """Return the actions of the version *body*."""
    return tuple(json.loads(line) for line in body.splitlines())


@contextmanager
def commits_alike(number: int) -> Iterator[None]:
    """Let commits of the process *number* differ by what they hold alone: times and ids would make
    each of them another state.
    """
    with (
        patch.object(delta, "time", SimpleNamespace(time_ns=lambda: 0)),
        patch.object(delta, "uuid4", lambda: number),
    ):
        yield
