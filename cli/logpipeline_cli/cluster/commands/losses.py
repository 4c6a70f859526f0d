"""``kubectl logpipeline losses``: what a pipeline in a cluster has lost, and that it was seen."""

from __future__ import annotations

import argparse
import asyncio

from logpipeline_cli.cluster.nats import reached
from logpipeline_cli.cluster.session import find, session
from logpipeline_cli.commands import losses


def run(args: argparse.Namespace) -> int:
    """List losses, or note that they were seen."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats, only_looks=not args.acknowledge) as target:
            return asyncio.run(losses.show(target, args))
