"""``logpipeline collect``: one collector, until it is asked to stop."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from logpipeline.spec import load
from logpipeline_cli.commands.component import http_address, run_until_stopped, server_of
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.layout import Layout, default_data
from logpipeline_cli.streams import fshipper

RESOURCE_WORDS = {"member": "--member", "data": "--data"}


def run(args: argparse.Namespace) -> int:
    """Run the collector that the words name, or that fshipper's variables describe."""
    if fshipper.is_meant(args, os.environ, fshipper.COLLECT, RESOURCE_WORDS):
        return _read_plainly(args)
    if not args.member:
        raise CliError("say which collector this is: --member collector-0")
    return _collect(args)


def _collect(args: argparse.Namespace) -> int:
    from logpipeline_collector import service
    from logpipeline_collector.config import from_pipeline

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
    return run_until_stopped("collector", lambda stop: service.run(config, stop))


def _read_plainly(args: argparse.Namespace) -> int:
    from logpipeline_collector.fshipper.config import ReaderConfig
    from logpipeline_collector.fshipper.service import run as serve

    subject, target, directory, pattern = fshipper.output(os.environ)
    host, port = http_address(args.http)
    config = ReaderConfig(
        nats=fshipper.server_of(os.environ, args.nats).named("logpipeline collect"),
        subject=subject,
        target=target,
        partitions=fshipper.read_partitions(os.environ),
        directory=directory,
        pattern=pattern,
        http_host=host,
        http_port=port,
    )
    return run_until_stopped("collector", lambda stop: serve(config, stop))
