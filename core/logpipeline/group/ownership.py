"""Ownership of a partition: a compare-and-swap on one record of the state bucket.

The record names an *epoch*, which rises with each owner, and the owner's *incarnation*, which is
one process. Taking the partition over and each later write is a swap at the last known revision:
an owner that lost the record cannot write it again, however long it was frozen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import BadRecord

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0


class Fenced(Exception):
    """The partition is no longer ours: another process took it over, or the bucket went back."""


class OwnerRecord(Protocol):
    """The fields that each record of an owner has."""

    @property
    def epoch(self) -> int:
        """Rises with each owner."""

    @property
    def owner(self) -> str:
        """The name of a member."""

    @property
    def incarnation(self) -> str:
        """The process of that member."""

    def encode(self) -> bytes:
        """Return the record as it is stored."""


R = TypeVar("R", bound=OwnerRecord)


def _no_headers(_: object) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class RecordFormat(Generic[R]):
    """The format of a kind of record: its decoder, which raises `BadRecord`, and the headers with
    which it is stored.
    """

    decode: Callable[[Entry], R]
    headers: Callable[[R], Mapping[str, str]] = _no_headers


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[R]):
    """A record with the revision at which it was read; revision 0 where there is none."""

    record: R | None
    revision: int


class OwnerRecords(Generic[R]):
    """The records of one format in *bucket*."""

    def __init__(self, bucket: Bucket, record_format: RecordFormat[R]) -> None:
        self._bucket = bucket
        self._format = record_format

    async def read(self, key: str) -> StoredRecord[R]:
        """Return the record at *key* as it is now.

        Raises:
            BadRecord: the key holds something else.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        entry = await self._bucket.get(key)
        if entry is None:
            return StoredRecord(None, 0)
        return StoredRecord(self._format.decode(entry), entry.revision)

    async def take(self, key: str, record: R, *, revision: int) -> HeldRecord[R]:
        """Write *record* in place of the one that was read at *revision*.

        Raises:
            Fenced: the key was written since.
            NotSent, OutcomeUnknown, ApiError: it may or may not be written. Read again: where it
            is, the record there has our own incarnation.
        """
        headers = dict(self._format.headers(record))
        try:
            revision = await self._bucket.swap(
                key, record.encode(), revision=revision, headers=headers
            )
        except Conflict as error:
            raise Fenced(str(error)) from error
        return HeldRecord(self._bucket, self._format, key, record, revision)


class HeldRecord(Generic[R]):
    """A record while it is ours; its writes follow one another, each fully known."""

    def __init__(
        self, bucket: Bucket, record_format: RecordFormat[R], key: str, record: R, revision: int
    ) -> None:
        self.record = record
        self._bucket = bucket
        self._format = record_format
        self._key = key
        self._revision = revision
        self._writing = asyncio.Lock()

    async def change(self, change: Callable[[R], R]) -> None:
        """Write what *change* makes of the record; return only when that certainly is written.

        Raises:
            Fenced: the record is no longer ours.
        """
        async with self._writing:
            wanted = change(self.record)
            wait_s = RETRY_FIRST_S
            while wanted != self.record:
                try:
                    if await self._write(wanted):
                        return
                except (NotSent, ApiError) as error:
                    log.debug("record not written", extra={"key": self._key, "reason": str(error)})
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)

    async def try_change(self, change: Callable[[R], R]) -> bool:
        """Write what *change* makes of the record, without waiting for a server that is away;
        return whether it certainly is written.

        Raises:
            Fenced: the record is no longer ours.
            NotSent, ApiError: it is not written.
        """
        async with self._writing:
            wanted = change(self.record)
            # The first swap fails where the answer to the one before was lost, and learns of it.
            return await self._write(wanted) or await self._write(wanted)

    async def read(self) -> R | None:
        """Return the record as the bucket shows it, None where it is lost. A replica that lags may
        show an older one.

        Raises:
            Fenced: the key holds something else.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        async with self._writing:
            entry = await self._bucket.get(self._key)
            return self._decoded(entry)

    async def check(self) -> None:
        """Look whether the bucket shows the record as ours.

        Raises:
            Fenced: it does not.
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        found = await self.read()
        if not self._is_ours(found):
            raise self.fenced_by(found)

    def fenced_by(self, found: R | None) -> Fenced:
        """Return the error that says that *found* stands where our record should."""
        if found is None:
            return Fenced("the state bucket lost the partition's record")
        epochs = f"epoch {found.epoch}, ours was {self.record.epoch}"
        if found.epoch < self.record.epoch:
            return Fenced(f"the state bucket went back to {epochs}")
        return Fenced(f"{found.owner} owns the partition since {epochs}")

    async def _write(self, wanted: R) -> bool:
        """Swap once; return whether *wanted* certainly stands."""
        value, headers = wanted.encode(), dict(self._format.headers(wanted))
        try:
            self._revision = await self._bucket.swap(
                self._key, value, revision=self._revision, headers=headers
            )
        except (Conflict, OutcomeUnknown) as error:
            if not await self._is_written(value, error):
                return False
        self.record = wanted
        return True

    async def _is_written(self, value: bytes, cause: Exception) -> bool:
        # Whether a swap without an answer happened is read from the record itself.
        try:
            entry = await self._bucket.get(self._key)
        except (NotSent, OutcomeUnknown, ApiError):
            return False
        found = self._decoded(entry)
        if entry is None or not self._is_ours(found):
            raise self.fenced_by(found) from cause
        # No other process writes in our epoch: this is an own write of which we do not know, or an
        # older state, read from a replica that lags or from a bucket that was restored. If the swap
        # at its revision succeeds, it was the last, and ours stands again.
        if entry.revision < self._revision:
            log.warning("the state bucket shows an older record of ours", extra={"key": self._key})
        self._revision = entry.revision
        return entry.value == value

    def _decoded(self, entry: Entry | None) -> R | None:
        if entry is None:
            return None
        try:
            return self._format.decode(entry)
        except BadRecord as error:
            raise Fenced(f"the record {self._key} was overwritten: {error}") from error

    def _is_ours(self, found: R | None) -> bool:
        ours = self.record
        return found is not None and (found.epoch, found.incarnation) == (
            ours.epoch,
            ours.incarnation,
        )
