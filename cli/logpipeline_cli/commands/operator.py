"""``logpipeline operator``: the operator of Kubernetes, which other installations do without."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from logpipeline_cli.errors import CliError

# What an operator needs and a plain installation lacks.
NEEDED = ("kopf", "kubernetes")


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM, or until another operator leads."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise CliError(
            f"the operator needs {' and '.join(missing)}: pip install 'logpipeline[operator]'"
        )
    from logpipeline_operator.main import main

    return main(words_of(args))


def words_of(args: argparse.Namespace) -> list[str]:
    """Return the words as the operator itself reads them."""
    words = [f"--namespace={namespace}" for namespace in args.namespace or ()]
    for name in ("http", "kubeconfig", "context"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name}={value}"]
    words += ["--read-only"] if args.read_only else []
    words += ["--no-lease"] if args.no_lease else []
    return words
