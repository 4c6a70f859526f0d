"""Run another program, and say what it said when it fails."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from waiting import WITHIN_S

OUTPUT_CHARS_MAX = 4_000
POLL_S = 0.1


class ToolError(Exception):
    """Something that the person at the keyboard has to know; it ends the tool with its text."""


def run(
    *command: str | Path,
    stdin: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return what *command* wrote to its standard output.

    Raises:
        ToolError: it could not be started, or failed; with the end of what it wrote.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=environment,
        )
    except FileNotFoundError as error:
        raise ToolError(f"{command[0]} is not installed") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-OUTPUT_CHARS_MAX:]
        raise ToolError(f"{_shown(command)}: ended with {done.returncode}: {said}")
    return done.stdout


def succeeds(*command: str | Path) -> bool:
    """Whether *command* can be run and ends well."""
    try:
        run(*command)
    except ToolError:
        return False
    return True


def wait_until(
    condition: Callable[[], bool], *, what: str, within_s: float = WITHIN_S, hint: str = ""
) -> None:
    """Return when *condition* holds.

    Raises:
        ToolError: it did not *within_s*.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise ToolError(f"{what}: not within {within_s:.0f} s. {hint}".strip())
        time.sleep(POLL_S)


def say(text: str) -> None:
    """Tell the person who waits what goes on. Standard output belongs to answers."""
    print(f"kind: {text}", file=sys.stderr, flush=True)


def _shown(command: Sequence[str | Path]) -> str:
    text = " ".join(str(part) for part in command)
    return text if len(text) <= OUTPUT_CHARS_MAX else f"{text[:OUTPUT_CHARS_MAX]}…"
