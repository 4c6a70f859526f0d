"""The small busy application as a process: it writes, says how far it is, and stops when told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from logpipeline_cli.errors import CliError

ANSWER_DEADLINE_S = 5.0
STOP_DEADLINE_S = 20.0


class BusyApplication:
    """Writes the logs of fifty hosts below *root*, and a ledger of every line."""

    def __init__(self, root: Path, ledger: Path, seed: int) -> None:
        self._words = ["--root", str(root), "--ledger", str(ledger), "--seed", str(seed)]
        self._process: asyncio.subprocess.Process | None = None
        self.rotations = 0
        self.lines = 0

    async def start(self) -> None:
        """Start writing."""
        words = ["-m", "logpipeline_demo.generator", *self._words, "--control"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def ask(self) -> None:
        """Learn how many lines and rotations there were; a late answer is left."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if process.returncode is not None:
            raise CliError(f"the busy application ended by itself with code {process.returncode}")
        process.stdin.write(b"status\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                line = await process.stdout.readline()
            if line:
                answer = json.loads(line)
                self.lines, self.rotations = answer["lines"], answer["rotations"]

    async def stop(self) -> None:
        """Let it finish its open lines and its ledger."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CliError("the busy application did not stop, so its ledger ends open") from None
