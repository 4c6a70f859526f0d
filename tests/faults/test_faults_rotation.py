"""A log that is rotated while it is looked at for the first time: all of it, in order."""

from __future__ import annotations

import gzip
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.log_chain import Folder, joined
from faults.settings import rounds

ROTATIONS = 3
LINES = 200
PAUSE_S_MAX = 0.003
LATE_S_MAX = 0.03
QUIET_S = 20.0


class Rotated(threading.Thread):
    """Writes a log and rotates it as logrotate does, with pauses anywhere in between."""

    def __init__(self, live: Path, chance: random.Random) -> None:
        super().__init__()
        self.data = b""
        self._live = live
        self._chance = chance

    def run(self) -> None:
        """Write and rotate a few times."""
        for _ in range(ROTATIONS):
            self._write(self._live, LINES)
            self._rotate()
        self._write(self._live, 1)

    def _write(self, path: Path, count: int) -> None:
        first = self.data.count(b"\n")
        lines = b"".join(b"line %d\n" % number for number in range(first, first + count))
        with path.open("ab", buffering=0) as file:
            file.write(lines)
        self.data += lines
        self._pause()

    def _rotate(self) -> None:
        older = self._named("1")
        for number in range(ROTATIONS, 1, -1):
            if (packed := self._named(f"{number}.gz")).exists():
                packed.rename(self._named(f"{number + 1}.gz"))
                self._pause()
        if older.exists():
            packed = self._named("1.gz")
            data = gzip.compress(older.read_bytes(), 1)
            with packed.open("wb", buffering=0) as file:
                half = self._chance.randrange(len(data))
                file.write(data[:half])
                self._pause()
                file.write(data[half:])
            self._pause()
            older.unlink()
            self._pause()
            packed.rename(self._named("2.gz"))
        self._live.rename(older)
        self._write(older, 5)

    def _named(self, suffix: str) -> Path:
        return self._live.with_name(f"{self._live.name}.{suffix}")

    def _pause(self) -> None:
        if self._chance.random() < 0.3:
            time.sleep(self._chance.random() * PAUSE_S_MAX)


@contextmanager
def threads_taking_turns() -> Iterator[None]:
    """Have them interrupt one another anywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.smoke
def test_a_log_is_read_in_order_whatever_is_rotated_meanwhile(tmp_path: Path, seed: int) -> None:
    """Each line once; files change their names, and inodes their files, between any two steps."""
    chance = random.Random(seed)
    with threads_taking_turns():
        for number in range(rounds()):
            folder = Folder(tmp_path / str(number), batch_bytes=64 * 1024)
            folder.live.touch()
            writing = Rotated(folder.live, chance)
            writing.start()
            time.sleep(chance.random() * LATE_S_MAX)
            read = b""
            while writing.is_alive():
                for listing in folder.discovery.scan():
                    folder.take(listing)
                    read += joined(folder.read_on())
                # What is to be waited for is over soon.
                folder.now_s += 0.1
            writing.join()
            folder.now_s += QUIET_S
            read += joined(folder.drain())
            folder.chain.release()
            assert read == writing.data
