"""Messages that the server will never accept: kept on disk, so that later lines are not held up.

Each message is a file: a line of JSON that describes it and the reason of the refusal, then its
bytes.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from logpipeline import statefile

log = logging.getLogger(__name__)

FILES_MAX = 10_000


class Quarantine:
    """Refused messages in one folder; beyond the limit they are counted and logged, not kept."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        # Since the process began.
        self.put_in = 0
        self.dropped = 0
        self.dropped_bytes = 0
        self._folder = folder
        self._bytes_max = bytes_max
        self._bytes = self._files = 0
        self._next = 1
        self._look()

    def kept(self) -> int:
        """Return how many messages are in the folder now: a person may have removed some."""
        return len(_files(self._folder))

    def put(self, about: dict[str, object], data: bytes, reason: str) -> None:
        """Keep *data*; if there is no room, log what is lost."""
        head = json.dumps(about | {"reason": reason}).encode() + b"\n"
        size = len(head) + len(data)
        fields = {**about, "reason": reason, "bytes": len(data)}
        if not self._has_room(size):
            self._look()
        if not self._has_room(size):
            self._drop(fields, "the quarantine is full; look at it and empty it", len(data))
            return
        path = self._folder / f"{self._next:08d}.msg"
        self._next += 1
        try:
            self._write(path, head + data)
        except OSError as error:
            self._drop(fields, str(error), len(data))
            return
        self._files += 1
        self._bytes += size
        self.put_in += 1
        log.error(
            "the server will never accept a batch; it is put into the quarantine",
            extra={**fields, "path": path},
        )

    def _has_room(self, size: int) -> bool:
        return self._bytes + size <= self._bytes_max and self._files < FILES_MAX

    def _look(self) -> None:
        """Count what is in the folder."""
        files = _files(self._folder)
        self._files = len(files)
        self._bytes = sum(_size(path) for path in files)
        self._next = max([self._next, *(int(path.stem) + 1 for path in files)])

    def _write(self, path: Path, content: bytes) -> None:
        self._folder.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise
        statefile.sync_folder(self._folder)

    def _drop(self, fields: dict[str, object], why: str, size: int) -> None:
        self.dropped += 1
        self.dropped_bytes += size
        log.error("a refused batch is lost", extra={**fields, "quarantine": why})


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.msg") if path.stem.isdigit()]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # removed since it was listed
