"""Any system that takes lines by POST. It sees each batch once if it looks at `Idempotency-Key`."""

from __future__ import annotations

import argparse

from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks.http_client import HttpClient, http_options
from logpipeline_cli.sinks.line_requests import LineRequests

KEY = "Idempotency-Key"
_TYPES = {"ndjson": "application/x-ndjson", "json": "application/json"}


class HttpDestination:
    """Posts each batch to one address, as lines of JSON or as one JSON array."""

    def __init__(self, client: HttpClient, form: str) -> None:
        self._client = client
        self._form = form
        self._requests = LineRequests(self._post)

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Post the lines; see `Destination.write`."""
        await self._requests.write(batch)

    async def _post(self, name: str, lines: list[bytes]) -> None:
        headers = {"Content-Type": _TYPES[self._form], KEY: name}
        self._client.check(await self._client.post(self._body(lines), headers))

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def _body(self, lines: list[bytes]) -> bytes:
        if self._form == "json":
            return b"[" + b",".join(lines) + b"]"
        return b"\n".join(lines) + b"\n"


def destination_of(args: argparse.Namespace) -> HttpDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    return HttpDestination(HttpClient(http_options(args)), args.output)
