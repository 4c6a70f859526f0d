"""Delta's log and its storage, as a model to be searched sees them: each call is an effect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from logpipeline_spark.formats import delta
from logpipeline_spark.formats.delta import LOG, DeltaLog
from logpipeline_spark.table.storage import Storage, Stored
from protocol.replay import Do

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
