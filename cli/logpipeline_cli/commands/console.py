"""``logpipeline console``: a pipeline in a browser."""

from __future__ import annotations

import argparse
import asyncio

from logpipeline_cli.commands.components import http_address
from logpipeline_cli.console.server import serve
from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.target import Target, find_target


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(target: Target, args: argparse.Namespace) -> int:
    """Serve the page of *target* until Ctrl-C.

    Raises:
        CliError: the address cannot be used.
    """
    host, port = http_address(args.http)

    def started(address: str) -> None:
        print(f"The console of {target.pipeline.name}: {address}", flush=True)

    try:
        asyncio.run(
            serve(target, host=host, port=port, names=args.host_name or (), started=started)
        )
    except OSError as error:
        raise CliError(
            f"cannot serve at {args.http}: {error.strerror or error}; give another --http HOST:PORT"
        ) from error
    return EXIT_OK
