"""Where a table lives: a folder of this machine or a bucket, behind the few verbs that it needs.

All that is written appears whole or not at all. One verb decides races: `put_if_absent`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol

from logpipeline_spark.errors import Refused

# The largest object read at once is a state of 250,000 sources.
OBJECT_BYTES_MAX = 512 * 1024 * 1024
# A place that lets two writers win does so each time.
CHECKS_MAX = 5


class StorageFailed(Refused):
    """The disk or the bucket did not do what it was asked for."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One object: its path within the table, its size, and when it was last written."""

    path: str
    size_bytes: int
    modified: datetime


class Storage(Protocol):
    """Whole objects by path. Storages travel to Spark's tasks, so each can be pickled."""

    @property
    def url(self) -> str:
        """Where it is, as readers are told."""

    def lake_options(self) -> dict[str, str]:
        """Return how delta-rs reaches it."""

    def read(self, path: str) -> bytes | None:
        """Return an object, or None where there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Put an object in the place of its former self."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Put an object that must not exist yet; of several writers, one is told True."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a large object piece by piece; it appears when the block ends well."""

    def open(self, path: str) -> BinaryIO:
        """Open an object for reading from any place in it.

        Raises:
            FileNotFoundError: it is not there.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return *length* bytes of an object, fewer where it ends, or None where there is none."""

    def list(self, folder: str) -> Iterator[Stored]:
        """Give all objects beneath *folder*, in no order."""

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; one that is not there is removed already."""

    def check(self) -> None:
        """Try whether this place lets one writer win.

        Raises:
            Refused: it does not, so that two writers would damage a table.
        """


@contextmanager
def said_of(url: str) -> Iterator[None]:
    """Turn what the operating system says about a disk into a sentence that says what to do."""
    try:
        yield
    except (FileNotFoundError, ConnectionError, TimeoutError):
        # Not the disk's: what is written may come from a network.
        raise
    except OSError as error:
        raise StorageFailed(_sentence(url, error)) from error


def _sentence(url: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{url} is full: make room there, or let retention keep less."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{url} may not be written: give this user the right to write there."
    if error.errno == errno.ENOTDIR:
        return f"{url} is no folder: choose another path."
    return f"{url} fails ({error.strerror or error}): repair the disk, or choose another path."
