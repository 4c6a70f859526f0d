"""The group of processes that a command and all that it started make, and their end: when the
command failed, and when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import IO, cast

log = logging.getLogger(__name__)

SHELL = "/bin/sh"
# How often it is looked whether a group has ended.
LOOK_S = 0.02
# States of processes in Linux's /proc that do nothing any more: zombie, and dead.
ENDED = "ZX"
# Reads numbers of groups until its writer is gone, however that ends, and kills the last one.
# Without that, only the first process of a group would end with the reader (and only on Linux), and
# the rest would work beside the next reader's command, on the same batch.
KEEPER = """
last=0
while read -r next; do last=$next; done
[ "$last" = 0 ] || kill -s KILL -- "-$last"
"""


class GroupKeeper:
    """Kills the process group that was noted last when this process is killed. It starts when it is
    needed first; `close` ends it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def descriptor(self) -> int:
        """Return where a new group writes its number, and a newline, before it starts anything."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [SHELL, "-c", KEEPER],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # What is sent to our group is not for it.
                start_new_session=True,
            )
        return cast("IO[bytes]", self._process.stdin).fileno()

    def forget(self) -> None:
        """Note that no group is to be killed."""
        # One that was killed itself is started anew.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.descriptor(), b"0\n")

    def close(self) -> None:
        """End the keeper."""
        if self._process is not None:
            self.forget()
            cast("IO[bytes]", self._process.stdin).close()
            self._process.wait()
            self._process = None


async def end_group(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """End the group of *process*, which leads it: by SIGTERM, after *grace_s* by SIGKILL. Return
    when none of it is left, not only when *process* has ended.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
                await _ended(process.pid)
                return
    log.warning(
        "processes of a command cannot be ended; its batch is tried again beside them",
        extra={"group": process.pid},
    )


async def _ended(group: int) -> None:
    is_over = not _lives(group)
    while not is_over:
        await asyncio.sleep(LOOK_S)
        is_over = not _lives(group)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        # The latter on macOS, where only zombies are left.
        return False
    if sys.platform != "linux":
        return True
    # Orphans that have ended stay in their group until their new parent, maybe a container's first
    # process, takes notice.
    return any(map(partial(_is_of, group=group), Path("/proc").glob("[0-9]*/stat")))


def _is_of(stat: Path, group: int) -> bool:
    try:
        # The name, in brackets, may hold anything.
        state, _, found, *_ = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return int(found) == group and state not in ENDED
