"""Notes which bytes are about to be sent, so that a restarted shipper repeats those very batches.

The server knows a message again only by the very range in its id. Positions are written once a
second; what was sent since then stands here, appended without fsync: that survives a kill of the
process, and a power cut is recognised by the machine's boot.

Births are synced: a file that was given another id after a power cut would be archived twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline import checksum
from logpipeline.checksum import NOTHING, Checksum

log = logging.getLogger(__name__)

_KIND = "intents"
_VERSION = 2
# A second of the smallest batches is far below; a file that is larger was not written by us.
INTENTS_BYTES_MAX = 256 * 1024 * 1024


class Key(NamedTuple):
    """One source among all of a shipper: host, and the wire's name of the source."""

    host: str
    source: str


@dataclass(frozen=True, slots=True)
class Intent:
    """Bytes that may have been sent; *attempt* is the suffix of their message id, *after* the
    generation's checksum at *end*.
    """

    generation: str
    start: int
    end: int
    attempt: str = ""
    after: Checksum = NOTHING


@dataclass(frozen=True, slots=True)
class Noted:
    """What the files say, in the order in which it was noted; *is_complete* says that this is
    certainly all.
    """

    intents: list[tuple[Key, Intent]]
    births: list[tuple[Key, list[Any]]]
    is_complete: bool


class IntentLog:
    """The files ``intents.<number>``; a new one is begun with each save of the positions."""

    def __init__(self, folder: Path, boot: str) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._boot = boot
        self._descriptor: int | None = None
        self._written = self._synced = 0
        self._syncing: asyncio.Task[None] | None = None

    def begin(self, number: int) -> None:
        """Note what follows in the file of *number*.

        Raises:
            OSError: it cannot be written; the one before goes on.
        """
        try:
            descriptor = self._made(number)
        except OSError as error:
            if self._descriptor is None:
                self._distrust(error)
            raise
        self._close()
        self._descriptor = descriptor
        self.problem = None

    def note(self, key: Key, intent: Intent) -> None:
        """Note that the bytes of *intent* are about to be sent."""
        after = checksum.encode(intent.after)
        self._append(
            [*key, intent.generation, intent.start, intent.end, intent.attempt, after],
        )

    async def note_birth(self, key: Key, birth: list[Any]) -> None:
        """Note that a generation is about to be sent for the first time, and return when that
        survives a power cut. *birth* is what a chain knows it again by.
        """
        self._append([*key, birth])
        self._written += 1
        wanted = self._written
        # Thousands of files are new at a first start: one sync serves all who wait.
        while self._synced < wanted and self._descriptor is not None:
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        written, descriptor = self._written, self._descriptor
        try:
            if descriptor is not None:
                copy = os.dup(descriptor)
                try:
                    await asyncio.to_thread(os.fdatasync, copy)
                finally:
                    os.close(copy)
            self._synced = max(self._synced, written)
        except OSError as error:
            self._distrust(error)
        finally:
            self._syncing = None

    def _append(self, row: list[object]) -> None:
        if self._descriptor is None:
            return
        try:
            _write(self._descriptor, row)
        except OSError as error:
            self._distrust(error)

    def forget_before(self, number: int) -> None:
        """Remove the files before *number*: the saved positions tell what they told."""
        for found, path in _files(self._folder):
            if found < number:
                with contextlib.suppress(OSError):  # an old file that stays is ignored when read
                    path.unlink()

    def close(self) -> None:
        """Note nothing any more."""
        self._close()

    def _made(self, number: int) -> int:
        path = _path(self._folder, number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            _write(descriptor, [_KIND, _VERSION, number, self._boot])
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        return descriptor

    def _distrust(self, error: OSError) -> None:
        # Without the files, the next start marks what it sends as perhaps sent before; with
        # incomplete ones it would not. Removing works on a full disk.
        self.problem = f"cannot note what is sent in {self._folder}: {error.strerror}; free space"
        log.error("intents cannot be written; shipping goes on", extra={"reason": self.problem})
        self._close()
        for _, path in _files(self._folder):
            with contextlib.suppress(OSError):
                path.unlink()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_noted(folder: Path, first: int, boot: str) -> Noted:
    """Return what was noted in the files from *first* on."""
    noted = Noted([], [], is_complete=False)
    is_complete = False
    for number, path in _files(folder):
        if number < first:
            continue
        lines = _lines(path)
        head = next(lines, None)
        if head is None or len(head) != 4 or head[:3] != [_KIND, _VERSION, number]:
            return noted
        is_complete = bool(boot) and head[3] == boot and (is_complete or number == first)
        for row in lines:
            match row:
                case [host, source, list(birth)]:
                    noted.births.append((Key(str(host), str(source)), birth))
                case [host, source, generation, start, end, attempt, after]:
                    intent = Intent(
                        str(generation),
                        int(start),
                        int(end),
                        str(attempt),
                        checksum.decode(after),
                    )
                    noted.intents.append((Key(str(host), str(source)), intent))
    return replace(noted, is_complete=is_complete)


def newest_number(folder: Path) -> int:
    """Return the highest number of a file that is there, or 0."""
    return max((number for number, _ in _files(folder)), default=0)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_KIND}.{number}"


def _files(folder: Path) -> list[tuple[int, Path]]:
    found = [path for path in folder.glob(f"{_KIND}.*") if path.suffix[1:].isdigit()]
    return sorted((int(path.suffix[1:]), path) for path in found)


def _lines(path: Path) -> Iterator[list[Any]]:
    with path.open("rb") as file:
        raw = file.read(INTENTS_BYTES_MAX)
    # What follows the last newline was being written when the process was killed, before its send.
    for line in raw.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, list):
            yield row


def _write(descriptor: int, row: list[object]) -> None:
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    if os.write(descriptor, line) != len(line):
        raise OSError(28, "no space left on device")
