"""Any system that takes lines by POST. It sees each batch once if it looks at `Idempotency-Key`."""

from __future__ import annotations

import argparse

from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks.destination import json_lines, name_of, part_name, parts
from logpipeline_cli.sinks.http_client import HttpClient, http_options

KEY = "Idempotency-Key"
_TYPES = {"ndjson": "application/x-ndjson", "json": "application/json"}


class HttpDestination:
    """Posts each batch to one address, as lines of JSON or as one JSON array."""

    def __init__(self, client: HttpClient, form: str) -> None:
        self._client = client
        self._form = form

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Post the lines; see `Destination.write`."""
        name = name_of(batch)
        lines = (line for message in batch.messages for line in json_lines(message))
        for number, part in enumerate(parts(lines, len)):
            key = part_name(name, number)
            headers = {"Content-Type": _TYPES[self._form], KEY: key}
            self._client.check(await self._client.post(self._body(part), headers))

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
