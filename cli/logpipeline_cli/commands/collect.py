"""``logpipeline collect``: one collector, until it is asked to stop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from logpipeline.spec import load
from logpipeline.spec.components import WORKERS_MAX
from logpipeline_cli.commands.component import http_address, run_until_stopped, server_of
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.layout import Layout, default_data
from logpipeline_cli.local.parts import Part
from logpipeline_cli.streams import fshipper

if TYPE_CHECKING:
    from logpipeline_collector.sharing import Share

# How a collector tells each of its workers which one it is.
WORKER_VARIABLE = "LOGPIPELINE_WORKER"
# With the back-off between them these take some seconds: then somebody has to look.
CRASHES_MAX = 5
RESOURCE_WORDS = {"member": "--member", "data": "--data"}


def run(args: argparse.Namespace) -> int:
    """Run the collector that the words name, or that fshipper's variables describe."""
    if fshipper.is_meant(args, os.environ, fshipper.COLLECT, RESOURCE_WORDS):
        return _read_plainly(args)
    if not args.member:
        raise CliError("say which collector this is: --member collector-0")
    return _collect(args)


def _collect(args: argparse.Namespace) -> int:
    from logpipeline_collector import pod, service
    from logpipeline_collector.config import from_pipeline
    from logpipeline_collector.sharing import Share

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
    if text := os.environ.pop(WORKER_VARIABLE, ""):
        share = Share.decode(text)
        return run_until_stopped(
            f"collector/{share.index}", lambda stop: service.run(config, stop, share)
        )
    workers = _workers(args.workers or pipeline.spec.collectors.workers, config.partitions)
    if workers == 1:
        return run_until_stopped("collector", lambda stop: service.run(config, stop))
    return run_until_stopped(
        "collector", lambda stop: pod.run(config, stop, workers=workers, make=_worker)
    )


def _workers(wanted: int, partitions: int) -> int:
    if wanted > WORKERS_MAX:
        raise CliError(f"--workers {wanted}: give at most {WORKERS_MAX}")
    # What is beyond could never have a partition, whoever else is away.
    return min(wanted, partitions)


def _worker(share: Share) -> Part:
    """Return the process of one worker: our own words, and in its environment which one it is."""
    return Part(
        f"worker-{share.index}",
        [sys.executable, "-m", "logpipeline_cli", *sys.argv[1:]],
        None,
        environment={WORKER_VARIABLE: share.encode()},
        kept=(share.page,),
        crashes_max=CRASHES_MAX,
    )


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
