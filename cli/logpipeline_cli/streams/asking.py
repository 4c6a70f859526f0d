"""Asks a person before something is done that cannot be undone."""

from __future__ import annotations

import sys

from logpipeline_cli.errors import CliError


def agreed(question: str, *, yes: bool) -> bool:
    """Return whether the person at the terminal agrees; *yes* says so without being asked.

    Raises:
        CliError: there is nobody to ask.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CliError("nobody is here to be asked: give --yes if you mean it")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
