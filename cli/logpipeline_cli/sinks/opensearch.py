"""OpenSearch and Elasticsearch, by their bulk API: each line is created under an id that it always
has, so that a second time is refused as one that is there already.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.consuming.message import Batch
from logpipeline_cli.batches import json_lines
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import (
    Misdirected,
    Refused,
    TryAgain,
    created_of,
    line_names,
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

# The answer then holds the status and the kind of error of each line. A whole error may repeat its
# line: those of many lines are longer than `ANSWER_BYTES_MAX`.
QUERY = "filter_path=errors,items.create.status,items.create.error.type"
QUERY_ALONE = "filter_path=errors,items.create.status,items.create.error"
# More than such an answer says of a line, so that those of a request fit into `ANSWER_BYTES_MAX`.
ITEM_BYTES_MAX = 256
CREATED = 201
# There is a document of this id: the line was written before.
IS_THERE = 409
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,254}")
# Errors with a status as those of a document have it, which are the index's own.
OF_INDEX = frozenset(
    {"index_closed_exception", "invalid_index_name_exception", "strict_dynamic_mapping_exception"}
)
# As `json_lines` begins each line, and as these systems call the time of a document.
_HEAD, _OWN_HEAD = b'{"time":', b'{"@timestamp":'


def documents(batch: Batch, index: str) -> Iterator[bytes]:
    """Yield two lines for each line of *batch*: what to do, and the document."""
    created = created_of(batch)
    for message in batch.messages:
        for name, line in zip(line_names(message, created), json_lines(message), strict=True):
            assert line.startswith(_HEAD)
            action = json.dumps({"create": {"_index": index, "_id": name}}).encode()
            yield action + b"\n" + _OWN_HEAD + line[len(_HEAD) :] + b"\n"


class _Item(NamedTuple):
    """What became of a document, as an answer says it."""

    status: int
    error: Any

    @property
    def is_there(self) -> bool:
        return self.status in (200, CREATED, IS_THERE)

    @property
    def is_misdirected(self) -> bool:
        kind = self.error.get("type") if isinstance(self.error, dict) else None
        return self.status in MISDIRECTED or (isinstance(kind, str) and kind in OF_INDEX)

    @property
    def is_for_later(self) -> bool:
        return self.status in AGAIN or self.status >= 500


class BulkDestination:
    """Creates the lines in *index*, which may be an alias or a data stream."""

    def __init__(self, client: HttpClient, index: str) -> None:
        self._client = client
        self._index = index

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Create the documents; see `Destination.write`."""
        for part in parts(documents(batch, self._index), _size):
            answer = await self._bulk(part, QUERY)
            try:
                items = _items(answer, len(part))
            except ValueError as error:
                raise TryAgain(
                    f"{self._client.where} answered something else than to _bulk ({error}): "
                    f"{answer.said}"
                ) from error
            failed = [pair for pair in zip(items, part, strict=True) if not pair[0].is_there]
            if failed:
                # Documents that only have to wait are written first; the others are refused then.
                item, document = min(failed, key=lambda pair: not pair[0].is_for_later)
                if not item.is_for_later:
                    item = await self._alone(document, item)
                raise self._error_of(item)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _bulk(self, part: Sequence[bytes], query: str) -> Answer:
        answer = await self._client.post(
            b"".join(part),
            {"Content-Type": "application/x-ndjson"},
            path=f"{self._client.base}/_bulk",
            query=query,
        )
        self._client.check(answer)
        return answer

    async def _alone(self, document: bytes, item: _Item) -> _Item:
        """Send *document* once more, alone, and return its item with the whole error."""
        answer = await self._bulk([document], QUERY_ALONE)
        try:
            return _items(answer, 1)[0]
        except ValueError:
            # The answer is longer than `ANSWER_BYTES_MAX`.
            return item._replace(error=answer.said)

    def _error_of(self, item: _Item) -> Exception:
        """Return the exception for a document that was not created."""
        where = self._client.where
        if item.is_there:
            return TryAgain(f"{where} refused a line, and took it when it came alone")
        said = json.dumps(item.error, ensure_ascii=False)[:SAID_CHARS_MAX]
        reason = f"{where} answered {item.status} to a line: {said}"
        if item.is_for_later:
            return TryAgain(reason)
        if item.is_misdirected:
            return Misdirected(f"{reason}; check the index and the rights of the login")
        return Refused(reason)


def _items(answer: Answer, count: int) -> list[_Item]:
    """Return what became of each of *count* documents.

    Raises:
        ValueError: it is no answer to `_bulk`, or one to another number of documents.
    """
    try:
        found = json_text.parse(answer.data)
        items = [item["create"] for item in found["items"]]
        if len(items) != count:
            raise ValueError(f"{count} documents were sent, and {len(items)} were answered for")
        return [_Item(int(item["status"]), item.get("error")) for item in items]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _size(document: bytes, _: bytes | None) -> int:
    return max(len(document), ITEM_BYTES_MAX)


def destination_of(args: argparse.Namespace) -> BulkDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    if not _INDEX.fullmatch(args.index):
        raise UsageError(f"--index {args.index!r}: give the name of an index, such as logs-shop")
    return BulkDestination(HttpClient(http_options(args)), args.index)
