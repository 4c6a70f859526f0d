"""Processes of pods, seen from this machine, that are made to hold still as one that hangs does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stopped(processes: Sequence[int]) -> Iterator[Sequence[int]]:
    """Processes of this machine that hold still, and know nothing of the time."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield processes
    finally:
        for process in processes:
            try:
                os.kill(process, signal.SIGCONT)
            except ProcessLookupError:
                continue


def processes_of(uid: str, program: str = "") -> list[int]:
    """The processes of this machine that are those of the pod *uid*, as what they mount tells; of
    *program* alone where it is named.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                mounts = [line.split() for line in (folder / "mountinfo").read_text().splitlines()]
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # Its node has them at this place; a container has them elsewhere.
            place = f"/pods/{uid}/volumes/"
            is_inside = any(place in root and place not in at for _, _, _, root, at, *_ in mounts)
            name = os.path.basename(words[0].decode())
            if is_inside and name and program in ("", name):
                found.append(int(folder.name))
    return found
