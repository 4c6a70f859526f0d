"""``kubectl logpipeline tail``: lines as they pass through a cluster."""

from __future__ import annotations

import argparse

from logpipeline_cli.cluster.nats import reached
from logpipeline_cli.cluster.session import find, session
from logpipeline_cli.commands import tail


def run(args: argparse.Namespace) -> int:
    """Print lines until enough came, or till Ctrl-C."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats, only_looks=True) as target:
            return tail.show(target, args)
