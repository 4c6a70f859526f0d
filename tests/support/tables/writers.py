"""Writers of tables, each a process of its own that can be killed, without starting a Python for
each.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import own_modules
from logpipeline.failpoints import VARIABLE
from tables import crash


@dataclass(frozen=True, slots=True)
class Writers:
    """Has writers forked by a *process*, one at a time; what one says is in *log*."""

    process: subprocess.Popen[str]
    log: Path

    def begin(self, url: str, environment: Mapping[str, str], place: str = "") -> None:
        """Let a writer of the table at *url* begin, which dies at *place*."""
        assert self.process.stdin is not None
        asked = {"url": url, "environment": {**environment, VARIABLE: place}, "log": str(self.log)}
        print(json.dumps(asked), file=self.process.stdin, flush=True)

    def end(self) -> int:
        """Return how the writer that began ended: as `Popen.returncode` says it."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    @property
    def said(self) -> str:
        """What the last writer printed."""
        return self.log.read_text()


@contextmanager
def running_writers(log: Path) -> Iterator[Writers]:
    """Have a process that forks writers, for as long as the block lasts."""
    process = subprocess.Popen(
        own_modules.command(crash.__name__),
        env=own_modules.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Writers(process, log)
        finally:
            process.kill()
