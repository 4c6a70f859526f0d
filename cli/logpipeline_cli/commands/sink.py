"""``logpipeline sink``: copy the lines of the streams into another system, until asked to stop."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import sys
from functools import partial

from logpipeline.consuming.options import KV, Acks, ConsumeOptions, checked, start_of
from logpipeline.consuming.reader import Reader
from logpipeline_cli.batches import counted, may_begin, process_batches, stop_by_signal
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK
from logpipeline_cli.sinks.copying import opened, write
from logpipeline_cli.sinks.destination import Destination
from logpipeline_cli.target import Target, connected, find_target
from logpipeline_cli.time_arguments import moment_ns


def run(args: argparse.Namespace) -> int:
    """Copy until the end that was asked for, a signal, or a batch that cannot be written."""
    options = _options(args)
    # Only the module of this kind is imported: some need optional packages.
    kind = importlib.import_module(f"logpipeline_cli.sinks.{args.action}")
    destination: Destination = kind.destination_of(args)
    target = find_target(file=args.file, data=args.data, nats=args.nats)
    logging.basicConfig(level=logging.WARNING, format="logpipeline: %(message)s", stream=sys.stderr)
    return asyncio.run(_sink(target, options, args, destination))


async def _sink(
    target: Target, options: ConsumeOptions, args: argparse.Namespace, destination: Destination
) -> int:
    stop = stop_by_signal()
    async with connected(target, f"sink {options.name}") as js:
        if not await may_begin(js, target, options, args, "sink"):
            return EXIT_FAILED
        try:
            if not await opened(destination, stop):
                return EXIT_OK
            async with Reader(js, target.pipeline, options) as reader:
                try:
                    await process_batches(reader, partial(write, destination), stop)
                finally:
                    print(f"logpipeline: {counted(reader)}", file=sys.stderr)
        finally:
            await destination.close()
    return EXIT_OK


def _options(args: argparse.Namespace) -> ConsumeOptions:
    if args.since is not None:
        # So that a mistake is named in the command's own words.
        moment_ns("--since", args.since)
    return checked(
        ConsumeOptions(
            name=args.name,
            acks=Acks("each"),
            batch=args.batch,
            state=KV,
            on_error=args.on_error,
            tries_max=args.tries,
            group=args.group,
            member=args.member,
            **start_of(args.deliver, args.since, args.from_seq),
            partitions=args.partitions,
            # None is written, so no rule of the table has to be right.
            event_time=(),
            count=args.count or 0,
            until_caught_up=args.until_caught_up,
        )
    )
