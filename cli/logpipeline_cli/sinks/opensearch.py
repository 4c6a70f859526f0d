"""OpenSearch and Elasticsearch, by their bulk API: each line is created under an id that it always
has, so that a second time is refused as one that is there already.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

from logpipeline import json_text
from logpipeline.consuming.message import Batch
from logpipeline_cli.batches import json_lines
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import (
    Misdirected,
    Refused,
    TryAgain,
    created_of,
    parts,
)
from logpipeline_cli.sinks.http_client import (
    AGAIN,
    MISDIRECTED,
    SAID_CHARS_MAX,
    Answer,
    HttpClient,
    http_options,
)

# Of each line the answer then says only what went wrong.
QUERY = "filter_path=errors,items.create.status,items.create.error"
# There is a document of this id: the line was written before.
IS_THERE = 409
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}")
# As `json_lines` begins each line, and as these systems call the time of a document.
_HEAD, _OWN_HEAD = b'{"time":', b'{"@timestamp":'


def documents(batch: Batch, index: str) -> Iterator[bytes]:
    """Yield two lines for each line of *batch*: what to do, and the document."""
    created = created_of(batch)
    for message in batch.messages:
        for number, line in enumerate(json_lines(message)):
            assert line.startswith(_HEAD)
            name = f"{batch.stream}-{created}-{message.sequence}-{number}"
            action = json.dumps({"create": {"_index": index, "_id": name}}).encode()
            yield action + b"\n" + _OWN_HEAD + line[len(_HEAD) :] + b"\n"


class BulkDestination:
    """Creates the lines in *index*, which may be an alias or a data stream."""

    def __init__(self, client: HttpClient, index: str) -> None:
        self._client = client
        self._index = index

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Create the documents; see `Destination.write`."""
        for part in parts(documents(batch, self._index), len):
            answer = await self._client.post(
                b"".join(part),
                {"Content-Type": "application/x-ndjson"},
                path=f"{self._client.base}/_bulk",
                query=QUERY,
            )
            self._client.check(answer)
            self._check_items(answer)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def _check_items(self, answer: Answer) -> None:
        """Look what became of each document.

        Raises:
            TryAgain, Refused, Misdirected: some were not created.
        """
        where = self._client.where
        try:
            found = json_text.parse(answer.data)
            items = [item["create"] for item in found.get("items", ())] if found["errors"] else []
            failed = [item for item in items if int(item["status"]) not in (200, 201, IS_THERE)]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise TryAgain(
                f"{where} answered something else than to _bulk: {answer.said}"
            ) from error
        # Documents that only have to wait are written first; the others are refused then.
        for item in sorted(failed, key=lambda item: not _is_for_later(int(item["status"]))):
            status = int(item["status"])
            reason = f"{where} answered {status} to a line: {_said(item)}"
            if _is_for_later(status):
                raise TryAgain(reason)
            if status in MISDIRECTED:
                raise Misdirected(f"{reason}; check the index and the rights of the login")
            raise Refused(reason)


def _is_for_later(status: int) -> bool:
    return status in AGAIN or status >= 500


def _said(item: dict[str, Any]) -> str:
    return json.dumps(item.get("error"), ensure_ascii=False)[:SAID_CHARS_MAX]


def destination_of(args: argparse.Namespace) -> BulkDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    if not _INDEX.fullmatch(args.index):
        raise UsageError(f"--index {args.index!r}: give the name of an index, such as logs-shop")
    return BulkDestination(HttpClient(http_options(args)), args.index)
