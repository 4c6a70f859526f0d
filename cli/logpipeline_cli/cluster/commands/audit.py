"""``kubectl logpipeline audit``: whether what stands in the nodes' log files is archived."""

from __future__ import annotations

import argparse

from logpipeline.quantity import parse_bytes
from logpipeline_cli.auditing.pipeline import Audit
from logpipeline_cli.auditing.remote import FarArchive, FarNode
from logpipeline_cli.cluster.ends import collectors_of, shippers_of
from logpipeline_cli.cluster.session import find, session
from logpipeline_cli.commands.audit import check_comparable, parsed, repeat


def run(args: argparse.Namespace) -> int:
    """Compare once, or again and again."""
    rate = parsed("--rate", args.rate, parse_bytes)
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        check_comparable(found.pipeline)
        collectors = found.pipeline.spec.collectors
        kept_ns = collectors.retention.max_age_ns
        nodes = [FarNode(end, rate, kept_ns) for end in shippers_of(found)]
        with collectors_of(found, only_running=args.running) as ends:
            archives = [FarArchive(end, collectors.group, collectors.output, rate) for end in ends]
            return repeat(Audit(found.pipeline, archives), nodes, args)
