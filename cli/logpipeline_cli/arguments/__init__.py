"""The arguments of the command ``logpipeline``, apart from the code that carries commands out.

Nothing heavy is imported here, so that `--help` and completion answer at once
(docs/decisions/0038-arguments-apart-from-commands.md).
"""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments import inspection, pipeline, receiving, streams, tables
from logpipeline_cli.arguments.parser import (
    PROGRAM,
    Command,
    Parser,
    add_commands,
    add_global,
    add_output,
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Moves log lines from files through NATS JetStream into files and tables: each "
        "line once, in order.",
        epilog="Start with `logpipeline demo`, then `logpipeline up -f logpipeline.yaml`.",
    )
    add_global(parser)
    add_commands(parser, COMMANDS)
    return parser


def _samples(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="print this sample, or with NAME/FILE one file of a use case (default: list them)",
    )


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"), help="the shell")


COMMANDS = (
    *pipeline.COMMANDS,
    *receiving.COMMANDS,
    *inspection.COMMANDS,
    *streams.COMMANDS,
    *tables.COMMANDS,
    Command(
        name="samples",
        help="list the sample resources, or print one",
        description="List the sample resources that come with logpipeline, or print one to start\n"
        "from.",
        example="logpipeline samples minimal > logpipeline.yaml",
        add=_samples,
        run="commands.samples:run",
    ),
    Command(
        name="version",
        help="print the versions",
        description="Print the versions of logpipeline, Python, nats-server and nats-py.",
        example="logpipeline version -o json",
        add=add_output,
        run="commands.program:version",
    ),
    Command(
        name="completion",
        help="print the completion script of a shell",
        description="Print the completion script of a shell.",
        example='eval "$(logpipeline completion bash)"',
        add=_completion,
        run="commands.program:completion",
    ),
)
