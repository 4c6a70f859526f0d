"""Logs by OTLP over HTTP, in JSON: OpenTelemetry's collectors, and the systems that take the same.

OTLP knows no second time: what is sent again is there twice. Each record has an attribute that
stays the same, `log.record.uid`, by which the system behind it may find such records.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from logpipeline import json_text
from logpipeline.consuming.message import Batch, Line
from logpipeline.origin import Origin
from logpipeline_cli.sinks.destination import Refused, created_of, line_names, readable
from logpipeline_cli.sinks.http_client import Answer, HttpClient, http_options
from logpipeline_cli.sinks.json_requests import Form, Piece, encoded

PATH = "/v1/logs"
FORM = Form(
    b'{"resourceLogs":[',
    b'{"resource":{"attributes":%b},'
    b'"scopeLogs":[{"scope":{"name":"logpipeline"},"logRecords":[%b]}]}',
    b"]}",
)


def records(batch: Batch) -> Iterator[Piece]:
    """Yield the records of *batch*, grouped by the resource that they are from."""
    created = created_of(batch)
    for message in batch.messages:
        resource = encoded(_resource(message.origin))
        for name, line in zip(line_names(message, created), message.lines, strict=True):
            yield Piece(resource, encoded(_record(line, name)))


def _record(line: Line, uid: str) -> dict[str, Any]:
    text, exact = readable(line.text)
    attributes = {
        "log.record.uid": uid,
        "log.iostream": line.stream,
        "log.file.path": _text(line.source),
        "log.partial": "" if line.is_whole else "true",
    }
    return {
        "timeUnixNano": str(line.time_ns),
        "observedTimeUnixNano": str(line.message.time_ns),
        "body": {"bytesValue": exact} if exact else {"stringValue": text},
        "attributes": _attributes(attributes),
    }


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in values.items() if text]


def _text(value: str) -> str:
    return readable(value.encode("utf-8", "surrogateescape"))[0]


def _resource(origin: Origin) -> list[dict[str, Any]]:
    return _attributes(
        {
            "host.name": origin.host,
            "k8s.namespace.name": origin.namespace,
            "k8s.pod.name": origin.pod,
            "k8s.container.name": origin.container,
        }
    )


class OtlpDestination:
    """Exports each batch."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def open(self) -> None:
        """There is nothing that could be asked without a line."""

    async def write(self, batch: Batch) -> None:
        """Export the lines; see `Destination.write`."""
        for data in FORM.bodies(records(batch)):
            answer = await self._client.post(
                data, {"Content-Type": "application/json"}, path=self._client.base or PATH
            )
            self._client.check(answer)
            _check_all_taken(answer, self._client.where)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def _check_all_taken(answer: Answer, where: str) -> None:
    """Look whether some records were rejected, which the protocol calls a success.

    Raises:
        Refused: some were.
    """
    try:
        partial = json_text.parse(answer.data or b"{}")["partialSuccess"]
        rejected = int(partial.get("rejectedLogRecords", 0))
    except (ValueError, TypeError, KeyError, AttributeError):
        # An empty answer, or none in JSON, says nothing of the kind.
        return
    if rejected:
        raise Refused(f"{where} rejected {rejected} records: {partial.get('errorMessage', '')}")


def destination_of(args: argparse.Namespace) -> OtlpDestination:
    """Return the destination that the arguments name.

    Raises:
        UsageError: one of them is wrong.
    """
    return OtlpDestination(HttpClient(http_options(args)))
