"""``logpipeline callout``: tells a nats-server who its clients are, until it is asked to stop."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from logpipeline.spec import load
from logpipeline_cli.commands.component import http_address, run_until_stopped, server_of
from logpipeline_cli.errors import CliError


def run(args: argparse.Namespace) -> int:
    """Run the callout of the server that the words name."""
    try:
        from logpipeline_operator.callout.claims import Issuer
        from logpipeline_operator.callout.service import Answers, KeysFile
        from logpipeline_operator.callout.service import run as serve
        from logpipeline_operator.callout.store import StoreWatch, end_servers
    except ModuleNotFoundError as error:
        raise CliError(
            f"{error.name} is not installed: pip install 'logpipeline[operator]'"
        ) from None
    pipeline = load(Path(args.file))
    try:
        keys = KeysFile(Path(args.keys))
        issuer = Issuer(Path(args.issuer).read_text())
    except ValueError as error:
        raise CliError(f"--keys or --issuer: {error}") from None
    except OSError as error:
        raise CliError(f"{error.filename} cannot be read: {error.strerror}") from None
    nats = server_of(pipeline, args.nats).named("logpipeline callout")
    if args.nats and pipeline.spec.nats.servers:
        # The server beside us, called by its address; its certificate is for the resource's name.
        nats = replace(nats, tls_name=urlsplit(pipeline.spec.nats.servers[0]).hostname or "")
    answers = Answers(pipeline, issuer, keys.current)
    http = http_address(args.http)
    if (args.store is None) != (args.pages is None):
        raise CliError("--store needs --pages, and --pages --store")
    watch = StoreWatch(Path(args.store), args.pages, end_servers) if args.store else None
    return run_until_stopped("callout", lambda stop: serve(nats, answers, http, watch, stop))
