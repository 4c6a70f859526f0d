"""Runs a command with a batch on its standard input; how it ends decides what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from logpipeline.consuming.message import Outcome

SHELL = "/bin/sh"
# What a command gets to end in when it was asked to.
GRACE_S = 5.0
# Sysexits' EX_TEMPFAIL: "try again later".
EXIT_TRY_AGAIN = 75
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A *text* for the shell. After *timeout_s* it is ended; the exit codes *retryable* ask for
    another try. With *allow_unread* it may leave input unread.
    """

    text: str
    timeout_s: float
    retryable: frozenset[int] = frozenset({EXIT_TRY_AGAIN})
    allow_unread: bool = False

    async def run(self, data: bytes, environment: Mapping[str, str]) -> Outcome:
        """Run it with *data* as input, and return what its end means."""
        with _file_of(data) as file:
            process = await asyncio.create_subprocess_exec(
                SHELL,
                "-c",
                self.text,
                stdin=file,
                start_new_session=True,
                env={**os.environ, **environment},
                preexec_fn=_end_with_parent,
            )
            code = await self._ended(process)
            # The command's place in the file is ours as well.
            unread = len(data) - os.lseek(file.fileno(), 0, os.SEEK_CUR)
        return self._meaning(code, unread, len(data))

    async def _ended(self, process: asyncio.subprocess.Process) -> int | None:
        """Return its exit code, negative for a signal, None where it had to be ended."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await process.wait()
        except TimeoutError:
            await _end(process)
            return None
        except BaseException:
            await _end(process)
            raise

    def _meaning(self, code: int | None, unread: int, total: int) -> Outcome:
        if code is None:
            return Outcome(
                "retry",
                f"the command did not end in {self.timeout_s:g} s and was ended (--timeout)",
            )
        if code < 0:
            return Outcome("retry", f"the command was ended by {signal.Signals(-code).name}")
        if code in self.retryable:
            return Outcome("retry", f"the command ended with {code}, which asks for another try")
        if code:
            return Outcome("reject", f"the command ended with {code}")
        if unread and not self.allow_unread:
            return Outcome(
                "reject",
                f"the command ended well but left {unread} of {total} bytes of its input unread; "
                "have it read all, or give --allow-unread",
            )
        return Outcome("processed")


def _file_of(data: bytes) -> BinaryIO:
    """Return a file of no name that holds *data*. A pipe would end where its writer dies, and a
    command take what it got by then for all of it.
    """
    file: BinaryIO
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("batch"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever asked for it closes it
    file.write(data)
    file.seek(0)
    return file


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the command with all that it started: politely, then for certain."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await process.wait()
                return


def _end_with_parent() -> None:
    # A reader that is killed must not leave a command behind that works on the same batch as its
    # successor's.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
