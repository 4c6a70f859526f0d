"""``logpipeline collect``: one collector, until it is asked to stop."""

from __future__ import annotations

import argparse
from pathlib import Path

from logpipeline.spec import load
from logpipeline_cli.commands.component import http_address, run_until_stopped, server_of
from logpipeline_cli.local.layout import Layout, default_data


def run(args: argparse.Namespace) -> int:
    """Run the collector that the words name."""
    from logpipeline_collector.config import from_pipeline
    from logpipeline_collector.service import run as serve

    pipeline = load(Path(args.file))
    data = Path(args.data) if args.data else None
    folder = data or Layout(default_data(pipeline.namespace, pipeline.name)).collector(args.member)
    host, port = http_address(args.http)
    config = from_pipeline(
        pipeline,
        member=args.member,
        data=folder,
        nats=server_of(pipeline, args.nats).named(f"logpipeline {args.member}"),
        http_host=host,
        http_port=port,
    )
    return run_until_stopped("collector", lambda stop: serve(config, stop))
