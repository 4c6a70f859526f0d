"""A receiver as a process, and the lines in its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from components.component import Component
from components.contents import contents_below
from ports import free_port


class Receiver(Component):
    """The process of `logpipeline receive *words*`, which writes below ``folder/received``."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.received = folder / "received"
        kind, *options = words
        command: Sequence[str] = ("receive", kind, "--to", str(self.received), *options)
        super().__init__(f"receive {kind}", command, folder / "receiver.log")

    def lines(self, name: str = "*") -> list[str]:
        """Return the lines in the files whose names begin like *name*, rotated ones first."""
        every = contents_below(self.received)
        found = [each for each in every if fnmatch(each.path.name, f"{name}.log*")]
        found.sort(key=lambda each: (str(each.path).split(".log")[0], -_age(each.path)))
        return [line for each in found for line in each.data.decode().split("\n")[:-1]]


def _age(path: Path) -> int:
    found = re.fullmatch(r".*\.log\.(\d+)", path.name)
    return int(found[1]) if found else 0


def address() -> tuple[str, int]:
    """Return an address of this machine that is free."""
    return "127.0.0.1", free_port()
