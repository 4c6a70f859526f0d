"""The commands ``logpipeline`` and ``kubectl logpipeline``: read their words, and hand over to the
one module that carries them out.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from logpipeline_cli.arguments import build_parser
from logpipeline_cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from logpipeline_cli.parser import PROGRAM


def main(words: Sequence[str] | None = None) -> int:
    """Carry out one command, and return its exit code."""
    args = build_parser().parse_args(words)
    return _carry_out(f"logpipeline_cli.commands.{args.command}", args, PROGRAM)


def kubectl(words: Sequence[str] | None = None) -> int:
    """Carry out one command in a cluster, as `kubectl logpipeline`, and return its exit code."""
    from logpipeline_cli.cluster import words as cluster

    args = cluster.build_parser().parse_args(words)
    # Pods and forwarded ports are given back however the command is ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    folder = "cluster.commands" if args.command in cluster.IN_CLUSTER else "commands"
    return _carry_out(f"logpipeline_cli.{folder}.{args.command}", args, cluster.PROGRAM)


def _carry_out(module: str, args: argparse.Namespace, program: str) -> int:
    try:
        code = importlib.import_module(module.replace("-", "_")).run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if _is_broken_pipe(error):
            # The reader (`head`) has what it wanted; Python would complain again at its own exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_OK
        from logpipeline_cli.errors import explain

        message = explain(error)
        if message is None:
            raise
        _tell(program, message)
        return EXIT_FAILED
    return int(code)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _is_broken_pipe(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def _tell(program: str, message: str) -> None:
    from logpipeline.observe.logs import printable

    # It may quote a file's name or a field of a stranger: a terminal must not act on them.
    text = "\n".join(printable(line) for line in message.split("\n"))
    print(f"{program}: {text}", file=sys.stderr)
