"""A part of the long tests, which are those that `make test` leaves out: what CI runs of them at
one commit. `PART=2/3` is the second of three.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

VARIABLE = "PART"
# Tests of one file share what takes longest there: pipelines, an operator, a table.
KEPT_TOGETHER = ("cluster", "operator", "spark")


@dataclass(frozen=True, slots=True)
class Part:
    """The part *number*, from 1 on, *of* so many. Each test is in one of them."""

    number: int
    of: int

    @classmethod
    def wanted(cls) -> Self | None:
        """Return the part that the environment asks for; None for all. Raises ValueError."""
        text = os.environ.get(VARIABLE, "")
        if not text:
            return None
        found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
        number, of = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise ValueError(f"{VARIABLE}={text}: say which part of how many, as in {VARIABLE}=2/3")
        return cls(number, of)

    def chosen(self, tier: str, tests: Iterable[str]) -> set[str]:
        """Return which of *tests*, the long ones of *tier*, are in it; each is `file::test`."""
        if tier in KEPT_TOGETHER:
            by_file = {test: test.partition("::")[0] for test in tests}
            files = set(sorted(set(by_file.values()))[self.number - 1 :: self.of])
            return {test for test, file in by_file.items() if file in files}
        # By their places in the list each part could have one and the same case of every table.
        return {test for test in tests if zlib.crc32(test.encode()) % self.of == self.number - 1}
