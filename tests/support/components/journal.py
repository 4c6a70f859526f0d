"""A systemd journal that a test writes."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

JOURNAL_REMOTE = "/lib/systemd/systemd-journal-remote"
BEGIN_US = 1_790_000_000_000_000
# Places in a journal file, as systemd's JOURNAL_FILE_FORMAT says.
SEQUENCE = slice(72, 88)
HEADER_SIZE, TAIL_OBJECT, TAIL_NUMBER, HEAD_NUMBER = 88, 136, 160, 168
OBJECT_SIZE, ENTRY_NUMBER, ENTRY = 8, 16, 3


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

    def rotate(self, count: int) -> Path:
        """Write *count* entries to a further file that goes on with the numbers of the present one,
        as journald rotates its files; return the path of the one before.
        """
        self.end()
        former, path = self.folder / "a.journal", self.folder / "b.journal"
        self.begin("b")
        self.write(count)
        self.end()
        before, data = former.read_bytes(), bytearray(path.read_bytes())
        data[SEQUENCE] = before[SEQUENCE]
        last = _number(before, TAIL_NUMBER)
        places = [TAIL_NUMBER, HEAD_NUMBER]
        at = _number(data, HEADER_SIZE)
        while at <= _number(data, TAIL_OBJECT):
            if data[at] == ENTRY:
                places.append(at + ENTRY_NUMBER)
            at += -(-_number(data, at + OBJECT_SIZE) // 8) * 8
        for place in places:
            struct.pack_into("<Q", data, place, last + _number(data, place))
        path.write_bytes(data)
        return former


def _number(data: bytes | bytearray, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])
