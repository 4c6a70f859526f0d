"""A real server that sinks copy to, as a process of its own, which can be killed and started again;
and a sink that copies to it while both are killed.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from components.consuming import Streams

POLL_S = 0.2
LOG_CHARS = 3000
# As in a server without a processor of its own.
WITHIN_S = 180.0


class RealServer:
    """A server in *folder*, which keeps what it holds there over a `kill` and a `start`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it answers."""
        raise NotImplementedError

    def launch(
        self,
        command: Sequence[str],
        ask: Callable[[], object],
        *,
        until: type[Exception],
        within_s: float,
    ) -> None:
        """Start *command*, and return once *ask* raises no *until* any more."""
        self._process = self.spawn(command)
        deadline = time.monotonic() + within_s
        while True:
            try:
                ask()
                return
            except until:
                said = (self.folder / "log").read_text(errors="replace")[-LOG_CHARS:]
                assert self._process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(POLL_S)

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start *command* in the folder, with its log there."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


async def copy_through_kills(
    server: RealServer, streams: Streams, words: Sequence[str], *, rounds: int, seed: int
) -> None:
    """Write lines, and copy them by the command *words*: the sink is killed after a write, and the
    server before the next sink begins.
    """
    dice = random.Random(seed)
    for _ in range(rounds):
        await streams.write(10, lines=2)
        await streams.command(*words, point=f"sink.written:{dice.randrange(1, 4)}").ends(-9)
        server.kill()
        sink = streams.command(*words, "--until-caught-up")
        await sink.says("not written yet", within_s=WITHIN_S)
        server.start()
        await sink.ends(0, within_s=WITHIN_S)
