"""The pieces of a command line: commands, the types of values, and the options that many commands
share.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logpipeline.multiline import AUTO, PRESETS

PROGRAM = "logpipeline"
LOG_LEVELS = ("debug", "info", "warning", "error")
# As logpipeline.observe.logs reads it; importing that would cost more than the rest of a start.
LOG_LEVEL_VARIABLE = "LOGPIPELINE_LOG_LEVEL"
CHOICES_LISTED_MAX = 8
# Where the parsed arguments hold the names of those that were given.
_GIVEN = "_given"

Adder = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class Command:
    """One command. *run* names the function that carries it out, as ``module:function`` below
    ``logpipeline_cli``; it takes the parsed arguments and returns the exit code.

    It is a name, and not the function itself, so that help and completion import no code of
    commands. *extra* names the optional packages that the command needs, as in
    ``pip install 'logpipeline[query]'``.
    """

    name: str
    help: str
    description: str
    example: str
    add: Adder
    run: str
    extra: str = ""


class _Once(argparse.Action):
    """Stores the value of an option that may be given once: of two values, none is obeyed."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault(_GIVEN, set())
        if option_string is not None and self.dest in given:
            raise argparse.ArgumentError(self, "give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Version(argparse.Action):
    """Prints the versions, as `logpipeline version` does, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from logpipeline_cli.commands.program import version

        parser.exit(version(argparse.Namespace(output="text")))


class _LogLevel(argparse.Action):
    """Sets the level of logs for this process and those that it starts."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        os.environ[LOG_LEVEL_VARIABLE] = str(values)


class Parser(argparse.ArgumentParser):
    """An argument parser that exits with `EXIT_USAGE`. argparse would exit with 2, by which `plan`
    reports changes.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        import difflib

        known = [str(choice) for choice in action.choices]
        close = difflib.get_close_matches(str(value), known, n=1)
        what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif len(known) <= CHOICES_LISTED_MAX:
            hint = f"choose from {', '.join(known)}"
        else:
            hint = "the help lists them"
        raise argparse.ArgumentError(action, f"there is no {what} {value!r}: {hint}")

    def error(self, message: str) -> None:  # type: ignore[override]
        """Print the mistake and the command that shows the help, and exit."""
        from logpipeline_cli.errors import EXIT_USAGE

        self.exit(EXIT_USAGE, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


def add_commands(parser: argparse.ArgumentParser, commands: Iterable[Command]) -> None:
    """Add *commands*; in the parsed arguments, ``run`` is the `Command.run` of the given one."""
    actions = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        sub = add_action(actions, command.name, command.help, command.description, command.example)
        sub.set_defaults(run=command.run, extra=command.extra)
        command.add(sub)


def add_global(parser: argparse.ArgumentParser) -> None:
    """Add the options that stand before the command."""
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions, and exit")
    parser.add_argument(
        "--log-level",
        action=_LogLevel,
        choices=LOG_LEVELS,
        default=argparse.SUPPRESS,
        help="the level of log records of components (info, or $LOGPIPELINE_LOG_LEVEL)",
    )


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_text: str,
    description: str,
    example: str,
) -> argparse.ArgumentParser:
    """Add the command or action *name*, and return its parser."""
    return actions.add_parser(
        name,
        help=help_text,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_pipeline(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the options that say which pipeline is meant; the resource may be *required*."""
    add_file(parser, required=required)
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the pipeline's data folder (default: $XDG_DATA_HOME/logpipeline/<namespace>.<name>)",
    )


def add_file(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option that names the resource."""
    parser.add_argument(
        "-f", "--file", metavar="FILE", required=required, help="the LogPipeline resource (YAML)"
    )


def add_nats(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the server."""
    parser.add_argument(
        "--nats",
        metavar="URL",
        help="the NATS server (default: the one of the running pipeline, or of the resource)",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which pipeline is meant, and which server."""
    add_pipeline(parser)
    add_nats(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the output format."""
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format (text)"
    )


def add_http(parser: argparse.ArgumentParser) -> None:
    """Add the address of the HTTP endpoints."""
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where to serve /metrics, /healthz and /readyz (127.0.0.1 and a free port)",
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add the option that confirms in advance."""
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def count(text: str) -> int:
    """Return *text* as a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from 1 on")
    return int(text)


def number(text: str) -> float:
    """Return *text* as a number of at least 0, without a sign or an exponent."""
    if not (match := re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number such as 20 or 0.5")
    return float(match.group())


def partition(text: str) -> int:
    """Return *text* as the number of a partition."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give the number of a partition, such as 0")
    return int(text)


def expression(text: str) -> re.Pattern[bytes]:
    """Return *text* as an expression to find in lines; `^` and `$` are the ends of a line."""
    try:
        return re.compile(os.fsencode(text), re.MULTILINE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _begin(text: str) -> str:
    try:
        # As `logpipeline.multiline` reads it.
        re.compile(text, re.ASCII)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return text


def add_multiline(
    parser: argparse.ArgumentParser, default: str, *, begin: Callable[[str], str] = _begin
) -> None:
    """Add the options that join lines to events; *default* says what is done without them, and
    *begin* checks the expression.
    """
    parser.add_argument(
        "--multiline",
        action="append",
        choices=(*PRESETS, AUTO),
        help="the languages whose stack traces are one event each (may be repeated; default: "
        f"{default})",
    )
    parser.add_argument(
        "--multiline-begin",
        type=begin,
        metavar="REGEX",
        help="an event begins at each line that this expression (RE2) finds a match in; other "
        "lines continue it",
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a newly created consumer begins."""
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--deliver",
        choices=("all", "new", "last"),
        default="all",
        help="where a newly created consumer begins: with all stored messages (the default), with "
        "new ones, or with the last one",
    )
    start.add_argument("--since", metavar="TIME", help="it begins at a time, or a span ago: 2h")
    start.add_argument("--from-seq", type=count, metavar="N", help="it begins at a sequence")
