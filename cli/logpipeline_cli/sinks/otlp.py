"""Logs by OTLP over HTTP, in JSON: OpenTelemetry's collectors, and the systems that take the same.

OTLP knows no second time: what is sent again is there twice. Each record has an attribute that
stays the same, `log.record.uid`, by which the system behind it may find such records.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.consuming.message import Batch, Line
from logpipeline.origin import Origin
from logpipeline_cli.sinks.destination import Refused, name_of, parts, readable
from logpipeline_cli.sinks.http_client import Answer, HttpClient, http_options

PATH = "/v1/logs"
SCOPE = "logpipeline"
# What the JSON of a record has beside its line.
RECORD_BYTES = 400


class Record(NamedTuple):
    """A line for OTLP, and where it is from."""

    origin: Origin
    data: dict[str, Any]
    size_bytes: int


def records(batch: Batch) -> Iterator[Record]:
    """Yield the records of *batch*."""
    name = name_of(batch)
    for message in batch.messages:
        for index, line in enumerate(message.lines):
            yield _record(line, f"{name}-{message.sequence}-{index}")


def _record(line: Line, uid: str) -> Record:
    body: dict[str, str]
    text, exact = readable(line.text)
    body = {"bytesValue": exact} if exact else {"stringValue": text}
    attributes = {
        "log.record.uid": uid,
        "log.iostream": line.stream,
        "log.file.path": _text(line.source),
        "log.partial": "" if line.is_whole else "true",
    }
    data = {
        "timeUnixNano": str(line.time_ns),
        "observedTimeUnixNano": str(line.message.time_ns),
        "body": body,
        "attributes": _attributes(attributes),
    }
    return Record(line.message.origin, data, len(line.text) + RECORD_BYTES)


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
        for part in parts(records(batch), lambda record: record.size_bytes):
            data = json.dumps(_request(part), ensure_ascii=False).encode()
            answer = await self._client.post(
                data, {"Content-Type": "application/json"}, path=self._client.base or PATH
            )
            self._client.check(answer)
            _check_all_taken(answer, self._client.where)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


def _request(found: list[Record]) -> dict[str, Any]:
    """Return the body of a request: runs of records of one origin, so that the order is kept."""
    resources: list[dict[str, Any]] = []
    last: Origin | None = None
    for record in found:
        if record.origin != last:
            last = record.origin
            scope = {"scope": {"name": SCOPE}, "logRecords": []}
            resource = {"attributes": _resource(record.origin)}
            resources.append({"resource": resource, "scopeLogs": [scope]})
        resources[-1]["scopeLogs"][0]["logRecords"].append(record.data)
    return {"resourceLogs": resources}


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
