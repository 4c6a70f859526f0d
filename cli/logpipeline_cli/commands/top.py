"""``logpipeline top``: a pipeline on the terminal, second by second, what is worst first."""

from __future__ import annotations

import argparse
import asyncio
import sys

from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.target import Target, find_target
from logpipeline_cli.watching.gathering import gathering
from logpipeline_cli.watching.screen import TopApp


def run(args: argparse.Namespace) -> int:
    """Show the pipeline until it is left."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats))


def show(target: Target) -> int:
    """Show the pipeline of *target* until it is left.

    Raises:
        CliError: there is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError("top needs a terminal; for a file or a pipe use `status -w`")
    asyncio.run(_show(target))
    return EXIT_OK


async def _show(target: Target) -> None:
    async with gathering(target, "top") as watched:
        await TopApp(watched).run_async()
