"""``logpipeline console``: a pipeline in a browser."""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from logpipeline_cli.commands.components import http_address
from logpipeline_cli.console.server import serve
from logpipeline_cli.errors import EXIT_OK, CliError, UsageError
from logpipeline_cli.target import Target, find_target

# What a person would not guess, and what an address can hold as it is.
TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    return show(find_target(file=args.file, data=args.data, nats=args.nats), args)


def show(
    target: Target, args: argparse.Namespace, *, span_s: float | None = None, says: bool = True
) -> int:
    """Serve the page of *target* until Ctrl-C, or for *span_s* seconds; its address is printed if
    it *says* so.

    Raises:
        CliError: the address cannot be used, or there is no token in the given file.
    """
    host, port = http_address(args.http)
    token = token_in(Path(args.token_file)) if args.token_file else ""

    def started(address: str) -> None:
        # Who gave the token has it already, and what we print may be kept as a log.
        shown = f"{address.partition('#')[0]}#token=… of {args.token_file}" if token else address
        if says:
            print(f"The console of {target.pipeline.name}: {shown}", flush=True)

    names = args.host_name or ()
    serving = serve(
        target, host=host, port=port, names=names, started=started, token=token, span_s=span_s
    )
    try:
        asyncio.run(serving)
    except OSError as error:
        raise CliError(
            f"cannot serve at {args.http}: {error.strerror or error}; give another --http HOST:PORT"
        ) from error
    return EXIT_OK


def token_in(file: Path) -> str:
    """Return the token that *file* holds.

    Raises:
        UsageError: it cannot be read, or what it holds is no token; it is not quoted.
    """
    try:
        found = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise UsageError(f"--token-file {file}: {error.strerror or error}") from error
    if not TOKEN.fullmatch(found):
        raise UsageError(
            f"--token-file {file}: give a file with 16 to 256 of A-Z a-z 0-9 _ -, such as `openssl "
            "rand -hex 24` makes them"
        )
    return found
