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
    except BrokenPipeError:
        # The reader (`head`) has what it wanted. Python would complain once more at its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as error:
        from logpipeline_cli.errors import explain

        message = explain(error)
        if message is None:
            raise
        print(f"{PROGRAM}: {message}", file=sys.stderr)
        return EXIT_FAILED
    return int(code)
