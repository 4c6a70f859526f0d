"""The programs ``logpipeline`` and ``kubectl-logpipeline``: parse the arguments, and call the one
function that carries the command out.
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
from logpipeline_cli.arguments.parser import PROGRAM
from logpipeline_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED, EXIT_USAGE


def main(words: Sequence[str] | None = None) -> int:
    """Carry out one command, and return its exit code."""
    return _carry_out(build_parser().parse_args(words), PROGRAM)


def kubectl(words: Sequence[str] | None = None) -> int:
    """Carry out one command in a cluster, as `kubectl logpipeline`, and return its exit code."""
    from logpipeline_cli.arguments import kubectl as arguments

    args = arguments.build_parser().parse_args(words)
    # Pods and forwarded ports are removed however the command ends.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    return _carry_out(args, arguments.PROGRAM)


def _carry_out(args: argparse.Namespace, program: str) -> int:
    module, _, function = args.run.partition(":")
    try:
        code = getattr(importlib.import_module(f"logpipeline_cli.{module}"), function)(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        # An optional package, whose import no command has to guard by itself.
        if not args.extra or str(error.name).startswith("logpipeline"):
            raise
        _print_error(
            program, f"{error.name} is not installed: pip install 'logpipeline[{args.extra}]'"
        )
        return EXIT_FAILED
    except Exception as error:
        if _is_broken_pipe(error):
            # The reader (`head`) has closed the pipe; Python would report it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_PIPE_CLOSED
        from logpipeline_cli.errors import explain, is_usage

        message = explain(error)
        if message is None:
            raise
        _print_error(program, message)
        return EXIT_USAGE if is_usage(error) else EXIT_FAILED
    return int(code)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _is_broken_pipe(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def _print_error(program: str, message: str) -> None:
    from logpipeline.observe.logs import printable

    # A message may quote file names or fields from outside: a terminal must not act on them.
    text = "\n".join(printable(line) for line in message.split("\n"))
    print(f"{program}: {text}", file=sys.stderr)
