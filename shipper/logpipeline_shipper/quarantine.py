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
        self.kept = 0
        self.dropped = 0
        self.dropped_bytes = 0
        self._folder = folder
        self._bytes_max = bytes_max
        sizes = [path.stat().st_size for path in _files(folder)]
        self._bytes = sum(sizes)
        self._files = len(sizes)
        self._next = 1 + max((int(path.stem) for path in _files(folder)), default=0)

    def put(self, about: dict[str, object], data: bytes, reason: str) -> None:
        """Keep *data*; if there is no room, log what is lost."""
        head = json.dumps(about | {"reason": reason}).encode() + b"\n"
        size = len(head) + len(data)
        fields = {**about, "reason": reason, "bytes": len(data)}
        if self._bytes + size > self._bytes_max or self._files >= FILES_MAX:
            self._drop(fields, "the quarantine is full; look at it and empty it", len(data))
            return
        path = self._folder / f"{self._next:08d}.msg"
        try:
            self._write(path, head + data)
        except OSError as error:
            path.unlink(missing_ok=True)
            self._drop(fields, str(error), len(data))
            return
        self._next += 1
        self._files += 1
        self._bytes += size
        self.kept += 1
        log.error(
            "the server will never accept a batch; it is put into the quarantine",
            extra={**fields, "path": path},
        )

    def _write(self, path: Path, content: bytes) -> None:
        self._folder.mkdir(exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        statefile.sync_folder(self._folder)

    def _drop(self, fields: dict[str, object], why: str, size: int) -> None:
        self.dropped += 1
        self.dropped_bytes += size
        log.error("a refused batch is lost", extra={**fields, "quarantine": why})


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.msg") if path.stem.isdigit()]
