"""``logpipeline console``: a pipeline in a browser."""

from __future__ import annotations

import argparse
import asyncio
import re
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from logpipeline_cli.commands.components import http_address
from logpipeline_cli.console.access import new_token
from logpipeline_cli.console.server import serve
from logpipeline_cli.errors import EXIT_OK, CliError, UsageError
from logpipeline_cli.target import Target, find_target

# What a person would not guess, and what an address can hold as it is.
TOKEN = re.compile(r"[A-Za-z0-9_-]{16,256}")


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    return Page(args).show(find_target(file=args.file, data=args.data, nats=args.nats))


class Page:
    """The page that *args* ask for. Where it is served, and its token, stay the same when it is
    served again: browsers that have it open ask on.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._http = args.http
        self._host, self._port = http_address(args.http)
        self._names = args.host_name or ()
        self._file = args.token_file
        self._made = new_token()
        self._is_said = False

    def show(self, target: Target, *, span_s: float | None = None) -> int:
        """Serve the page of *target* until Ctrl-C, or for *span_s* seconds. Its address is printed
        the first time.

        Raises:
            CliError: the address cannot be used, or there is no token in the given file.
        """
        serving = serve(
            target,
            host=self._host,
            port=self._port,
            names=self._names,
            started=partial(self._started, target.pipeline.name),
            # Its file is read each time: it may hold another by now.
            token=token_in(Path(self._file)) if self._file else self._made,
            span_s=span_s,
        )
        try:
            asyncio.run(serving)
        except OSError as error:
            raise CliError(
                f"cannot serve at {self._http}: {error.strerror or error}; give another --http "
                "HOST:PORT"
            ) from error
        return EXIT_OK

    def _started(self, name: str, address: str) -> None:
        root = address.partition("#")[0]
        # Port 0 is a free one, and then that one.
        self._port = urlsplit(root).port or self._port
        # Who gave the token has it already, and what we print may be kept as a log.
        shown = f"{root}#token=… of {self._file}" if self._file else address
        if not self._is_said:
            print(f"The console of {name}: {shown}", flush=True)
        self._is_said = True


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
