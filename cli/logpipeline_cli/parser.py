"""How a command line is put together: of commands, each with a module that carries it out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

PROGRAM = "logpipeline"

Adder = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class Command:
    """One command; its module is ``logpipeline_cli.commands.<name>``, with `_` for `-`."""

    name: str
    help: str
    description: str
    example: str
    add: Adder


class Parser(argparse.ArgumentParser):
    """Ends with `EXIT_USAGE` where argparse would with 2, which here says that a plan has
    changes.
    """

    def error(self, message: str) -> None:  # type: ignore[override]
        """Say what is wrong with the words, and how to see the right ones."""
        from logpipeline_cli.exits import EXIT_USAGE

        self.exit(EXIT_USAGE, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def add_commands(parser: argparse.ArgumentParser, chosen: Iterable[Command]) -> None:
    """Add the *chosen* commands; ``args.command`` names the one that was given."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in chosen:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            epilog=example(command.example),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(sub)


def example(words: str) -> str:
    """Return the end of a help text."""
    return f"example:\n  {words}"


def count(text: str) -> int:
    """Return a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds."""
    if not (match := re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, such as 20")
    return float(match.group())
