"""Who may write a table: one at a time.

A lease is a numbered object that must not exist yet; the highest number holds. Its holder writes
it again while it lives. Another writer that sees it unchanged for `LEASE_S`, by its own clock, puts
the next number: no two clocks are compared. What a sleeper might still do is decided by the
manifest: a new holder's first commit takes the number that the former one would need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.names import TABLE, name_of
from logpipeline_spark.table.packed import pack, unpack
from logpipeline_spark.table.storage import Storage

LEASES = f"{TABLE}/lease"
# A pause of a virtual machine or a full collection of a JVM is shorter.
LEASE_S = 20.0
RENEW_S = 5.0
_KIND = "lease"


class LeaseHeld(Refused):
    """Another writer is at work."""


class LeaseLost(Refused):
    """Another writer took over."""


@dataclass(frozen=True, slots=True)
class Fence:
    """What a task needs to ask whether its writer still holds the table; it can be pickled."""

    number: int
    writer: str

    def check(self, storage: Storage) -> None:
        """Ask before files are shown.

        Raises:
            LeaseLost: another one writes the table now.
        """
        newest = _newest(storage)
        if newest != self.number:
            raise LeaseLost(
                f"{storage.url} is written by another process now: "
                "stop one of the two, or give it a path of its own."
            )

    @contextmanager
    def explaining(self, storage: Storage) -> Iterator[None]:
        """Turn a missing file into `LeaseLost` if the lease is lost: a new holder of the lease
        removes the unfinished files of the former one.

        Raises:
            LeaseLost: another one writes the table now.
        """
        try:
            yield
        except FileNotFoundError:
            self.check(storage)
            raise


class Lease:
    """The right to write, for as long as it is renewed."""

    def __init__(self, storage: Storage, number: int, holder: str) -> None:
        self._storage = storage
        self._holder = holder
        self._beat = 0
        self.fence = Fence(number, uuid4().hex)

    @classmethod
    def take(
        cls,
        storage: Storage,
        holder: str,
        *,
        wait: Callable[[float], object] = time.sleep,
        patience_s: float = LEASE_S,
    ) -> Lease:
        """Take the lease; a *holder* that comes back under its own name does not wait.

        Raises:
            LeaseHeld: another one renewed it meanwhile.
        """
        number = _newest(storage)
        seen = storage.read(_path(number)) if number else None
        if seen is not None and not _is_free(seen, number, holder):
            wait(patience_s)
            if (_newest(storage), storage.read(_path(number))) != (number, seen):
                raise LeaseHeld(_held(storage, _newest(storage)))
        lease = cls(storage, number + 1, holder)
        is_first = storage.put_if_absent(_path(number + 1), lease._text())
        # Old numbers are removed, so that a slow writer may have put one that was used before.
        if not is_first or _newest(storage) != number + 1:
            raise LeaseHeld(_held(storage, _newest(storage)))
        storage.delete(_path(old) for old in _numbers(storage) if old < number)
        return lease

    def renew(self) -> None:
        """Say that the holder lives; to be done every `RENEW_S`.

        Raises:
            LeaseLost: another one took over.
        """
        self.fence.check(self._storage)
        self._beat += 1
        self._storage.write(_path(self.fence.number), self._text())

    def release(self) -> None:
        """Let the next one go on at once."""
        if _newest(self._storage) == self.fence.number:
            self._storage.write(_path(self.fence.number), self._text(is_released=True))

    def _text(self, *, is_released: bool = False) -> bytes:
        said = {
            "holder": self._holder,
            "writer": self.fence.writer,
            "beat": self._beat,
            "released": is_released,
        }
        return pack(_KIND, said)


def _path(number: int) -> str:
    return f"{LEASES}/{number:020d}.json"


def _numbers(storage: Storage) -> list[int]:
    names = (name_of(stored.path).removesuffix(".json") for stored in storage.list(LEASES))
    return [int(name) for name in names if name.isdecimal()]


def _newest(storage: Storage) -> int:
    return max(_numbers(storage), default=0)


def _is_free(raw: bytes, number: int, holder: str) -> bool:
    said = unpack(_KIND, _path(number), raw)
    return bool(said["released"]) or said["holder"] == holder


def _held(storage: Storage, number: int) -> str:
    raw = storage.read(_path(number))
    who = unpack(_KIND, _path(number), raw)["holder"] if raw else "another process"
    return f"{storage.url} is written by {who}: stop it, or choose another path."
