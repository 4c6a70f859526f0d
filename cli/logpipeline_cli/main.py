"""The command ``logpipeline``: reads its words, and hands over to the one module that carries them
out.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from logpipeline_cli.arguments import PROGRAM, build_parser
from logpipeline_cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK


def main(words: Sequence[str] | None = None) -> int:
    """Carry out one command, and return its exit code."""
    args = build_parser().parse_args(words)
    command = importlib.import_module(f"logpipeline_cli.commands.{args.command}")
    try:
        code = command.run(args)
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
        _tell(message)
        return EXIT_FAILED
    return int(code)


def _is_broken_pipe(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.subgroup(BrokenPipeError) is not None
    return isinstance(error, BrokenPipeError)


def _tell(message: str) -> None:
    from logpipeline.observe.logs import printable

    # It may quote a file's name or a field of a stranger: a terminal must not act on them.
    text = "\n".join(printable(line) for line in message.split("\n"))
    print(f"{PROGRAM}: {text}", file=sys.stderr)
