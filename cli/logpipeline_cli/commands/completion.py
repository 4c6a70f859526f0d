"""``logpipeline completion``."""

from __future__ import annotations

import argparse

import shtab

from logpipeline_cli.arguments import build_parser
from logpipeline_cli.exits import EXIT_OK


def run(args: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    print(shtab.complete(build_parser(), shell=args.shell))
    return EXIT_OK
