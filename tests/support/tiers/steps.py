"""What `make check`, `make test` and `make test-all` consist of: the steps, and what each needs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
# Long enough for a loaded machine: it is a net for what hangs, not a measure.
LIMIT_S = 2_400.0
# How much a step waits behind others, as `nice` counts it: one that builds takes a third of what
# each of the others takes. Spark gives a process of Python ten seconds to start, and no setting
# changes that.
BACKGROUND_NICE = 5
PROMPT_NICE = -8


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a run.

    *load* is how many processors it keeps busy, on average. *after* names the steps that have to
    have ended before, well or not: without what they build, tests say what is lacking. One in the
    background begins at once, takes no room, and gets less of the processors than others. One
    that *is_urgent* does take room: the longest step waits for it, so that others wait as well. One
    that *is_prompt* gets the processors before others, where the user may ask for that.
    """

    name: str
    shows: str
    command: tuple[str, ...]
    load: float = 1.0
    after: tuple[str, ...] = ()
    is_background: bool = False
    is_urgent: bool = False
    is_prompt: bool = False
    limit_s: float = LIMIT_S

    @property
    def nice(self) -> int:
        """How much it waits behind others, as `nice` counts it."""
        if self.is_prompt:
            return PROMPT_NICE
        return BACKGROUND_NICE if self.is_background and not self.is_urgent else 0

    @property
    def takes_room(self) -> bool:
        """Whether others that take room may have to wait for it."""
        return self.is_urgent or not self.is_background

    @property
    def has_tests(self) -> bool:
        """Whether it is a run of pytest, which counts tests."""
        return bool(self.command) and Path(self.command[0]).name == "pytest"


def pytest_step(
    name: str,
    shows: str,
    *words: str,
    load: float,
    after: tuple[str, ...] = (),
    folder: Path = BIN,
    is_prompt: bool = False,
) -> Step:
    """Return a step that runs pytest with *words*, as it is installed in *folder*."""
    command = (f"{folder}/pytest", "-q", f"--session-timeout={LIMIT_S:.0f}", *words)
    return Step(
        name=name, shows=shows, command=command, load=load, after=after, is_prompt=is_prompt
    )
