"""Grafana Loki, by its push API in JSON.

Loki drops an entry that has the labels, the timestamp, the line and the structured metadata of one
that is still in the open block of its stream, 256 KB unless its configuration says otherwise. That
is what makes a small batch that comes again harmless. So the metadata hold a name that the line
always has, and not that of its batch, which is cut in another way when it comes again; and two
lines are never one.

Loki knows no order among entries of one timestamp. So the lines of a message that have the same
time get timestamps that are a nanosecond apart, always the same ones.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logpipeline.consuming.message import Batch, Line, Message
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import created_of, line_names, readable
from logpipeline_cli.sinks.http_client import HttpClient, http_options
from logpipeline_cli.sinks.json_requests import Form, Piece, encoded

PATH = "/loki/api/v1/push"
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)")
# Loki measures what its own parts send each other, by default 4 MiB at most: each entry with the
# level that it found there, and lengths in place of JSON's quotes.
ADDED_BYTES = 64
FORM = Form(b'{"streams":[', b'{"stream":%b,"values":[%b]}', b"]}", ADDED_BYTES)

# More than the lines of a message have nanoseconds between them that are not their own.
NEAR_NS = 1_000_000
Labels = tuple[tuple[str, str], ...]


class Entry(NamedTuple):
    """A line for Loki: its *labels* as sorted pairs, its time, and its structured metadata."""

    labels: Labels
    time_ns: int
    text: str
    metadata: dict[str, str]


def entries(batch: Batch, more: Mapping[str, str]) -> list[Entry]:
    """Return the entries of *batch*, with *more* labels, no two of them equal to Loki."""
    created = created_of(batch)
    return [
        entry
        for message in batch.messages
        for entry in _of_message(message, line_names(message, created), more)
    ]


def _of_message(message: Message, names: Sequence[str], more: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the entries of *message*. It takes a time in proportion to their number, however many
    are equal.
    """
    last_ns: dict[Labels, int] = {}
    # Of each time that is taken, a later one that may be free: all between are taken, too.
    later_ns: dict[tuple[Labels, int, str], int] = {}
    for name, line in zip(names, message.lines, strict=True):
        text, exact = readable(line.text)
        labels, own_ns = _labels(line, more), line.time_ns
        last = last_ns.get(labels, 0)
        # A clock may be set back within a message: that is no order to keep.
        time_ns = last + 1 if last - NEAR_NS < own_ns <= last else own_ns
        while (taken := (labels, time_ns, text)) in later_ns:
            time_ns = later_ns[taken]
        later_ns[taken] = later_ns[labels, own_ns, text] = time_ns + 1
        last_ns[labels] = time_ns
        metadata = {
            "line_id": name,
            "source": readable(line.source.encode("utf-8", "surrogateescape"))[0],
            "stream": line.stream,
            "message_base64": exact,
            "partial": "" if line.is_whole else "true",
        }
        metadata = {key: value for key, value in metadata.items() if value}
        yield Entry(labels, time_ns, text, metadata)


def _labels(line: Line, more: Mapping[str, str]) -> Labels:
    origin = line.message.origin
    own = {
        "host": origin.host,
        "namespace": origin.namespace,
        "pod": origin.pod,
        "container": origin.container,
    }
    labels = {**more, **own}
    return tuple(sorted((name, value) for name, value in labels.items() if value))


class LokiDestination:
    """Pushes each batch, with *labels* beside those of its lines."""

    def __init__(self, client: HttpClient, labels: Mapping[str, str]) -> None:
        self._client = client
        self._labels = labels

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Push the lines; see `Destination.write`."""
        for data in FORM.bodies(map(_piece, entries(batch, self._labels))):
            answer = await self._client.post(
                data, {"Content-Type": "application/json"}, path=self._client.base or PATH
            )
            self._client.check(answer)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def _piece(entry: Entry) -> Piece:
    value = [str(entry.time_ns), entry.text, entry.metadata]
    return Piece(encoded(dict(entry.labels)), encoded(value))


def destination_of(args: argparse.Namespace) -> LokiDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    labels = {}
    for text in args.label or ():
        if (found := _LABEL.fullmatch(text)) is None:
            raise UsageError(f"--label {text!r}: give a name and a value, such as job=shop")
        labels[found[1]] = found[2]
    return LokiDestination(HttpClient(http_options(args)), labels)
