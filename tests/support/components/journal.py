"""A systemd journal that a test writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

JOURNAL_REMOTE = "/lib/systemd/systemd-journal-remote"
BEGIN_US = 1_790_000_000_000_000


class Journal:
    """A journal file that a process writes what it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.written: list[str] = []
        self.begin()

    def begin(self, name: str = "a") -> None:
        """Write to the journal file *name* from now on."""
        self._process = subprocess.Popen(
            [JOURNAL_REMOTE, "-o", str(self.folder / f"{name}.journal"), "-"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def write(self, count: int, boot: int = 1) -> None:
        """Write so many entries more."""
        assert self._process.stdin is not None
        for _ in range(count):
            number = len(self.written)
            self.written.append(f"entry {number}")
            fields = {
                "__REALTIME_TIMESTAMP": BEGIN_US + number * 1000,
                "__MONOTONIC_TIMESTAMP": 1000 + number * 1000,
                "_BOOT_ID": f"{boot:032x}",
                "SYSLOG_IDENTIFIER": "app",
                "MESSAGE": self.written[-1],
            }
            text = "".join(f"{name}={value}\n" for name, value in fields.items())
            self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()

    def end(self) -> None:
        """Return once all is in the file."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
