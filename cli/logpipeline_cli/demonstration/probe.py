"""Measures how long a line takes from file to file, by writing one and watching for it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path

from logpipeline.listing import files_below

EVERY_S = 0.5
LOOK_EVERY_S = 0.002
# The first line waits for all parts to start, on a busy machine for long.
ARRIVES_WITHIN_S = 30.0
SAMPLES_MAX = 200


class Probe:
    """Writes to *path*, and looks for its lines in the collectors' *outputs*. *first_s* is how long
    the first one took.
    """

    def __init__(self, path: Path, outputs: Path) -> None:
        self.path = path
        self._outputs = outputs
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._found: Path | None = None
        self.first_s: float | None = None

    def prepare(self) -> None:
        """Make the file, so that it can be watched from its beginning."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    async def run(self) -> None:
        """Measure for ever."""
        number = 0
        with self.path.open("ab", buffering=0) as file:
            while True:
                number += 1
                line = b"probe %d at %d\n" % (number, time.time_ns())
                started = time.monotonic()
                file.write(line)
                if await self._arrived(line, started + ARRIVES_WITHIN_S):
                    took_s = time.monotonic() - started
                    if self.first_s is None:
                        # It waited for every process to start, which is no latency.
                        self.first_s = took_s
                    else:
                        self._samples.append(took_s)
                await asyncio.sleep(EVERY_S)

    def percentile_s(self, share: float) -> float | None:
        """Return the time within which *share* (0 to 1) of the last lines arrived, if any did."""
        if not self._samples:
            return None
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    async def _arrived(self, line: bytes, until: float) -> bool:
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._ends_with(line):
                return True
        return False

    def _ends_with(self, line: bytes) -> bool:
        if self._found is None or not self._found.exists():
            # The partition may have moved to another collector; the newest file is the one in use.
            found = [path for path in files_below(self._outputs) if path.name == self.path.name]
            if not found:
                return False
            self._found = max(found, key=lambda path: path.stat().st_mtime_ns)
        with self._found.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - len(line)))
            return file.read() == line
