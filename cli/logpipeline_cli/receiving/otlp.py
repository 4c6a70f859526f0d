"""Logs in OpenTelemetry's protocol: one line for each log record, in the form of its JSON. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline_cli.receiving.syslog import json_of

# A collector's exporter sends some 8,192 records at once, which are a few megabytes.
BODY_BYTES_MAX = 16 * 1024 * 1024
# Each line holds the resource of its record: a large one before many small records would become
# terabytes.
LINES_BYTES_MAX = 4 * BODY_BYTES_MAX
# An empty one is two bytes in a request, and hundreds in memory. Exporters send some 8,192 at once.
RECORDS_MAX = 200_000
FEWER = "send fewer at once"
# How zlib is asked for the format of each content encoding. `deflate`, which the protocol does not
# ask for, is a choice of Python's exporter.
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class BadRequest(ValueError):
    """A request with a mistake in it, which the message names. Sent again, it is refused again."""


class Logs(NamedTuple):
    """The lines of a request, each with the name of its service. *rejected* records were none.
    *unknown_bytes* are those of fields that a newer version of the protocol has, and that are left
    out.
    """

    lines: list[tuple[str, bytes]]
    rejected: int
    unknown_bytes: int = 0


class Group(NamedTuple):
    """*records* that have a resource and a scope in common. `resource` and `schemaUrl` of the one,
    `scope` and `schemaUrl` of the other are in the form of OTLP's JSON.
    """

    resource: dict[str, Any]
    scope: dict[str, Any]
    records: Sequence[Any]


class Encoding(NamedTuple):
    """How requests are read, and answers written in the same *content_type*.

    *parse* raises `BadRequest`; *accepted* writes an ExportLogsServiceResponse that rejects so many
    records, *status* a google.rpc.Status with a message.
    """

    content_type: str
    parse: Callable[[bytes], Logs]
    accepted: Callable[[int], bytes]
    status: Callable[[str], bytes]


def unpack(body: bytes, encoding: str) -> bytes:
    """Return *body* without its content *encoding*.

    Raises:
        BadRequest: it is of another encoding, damaged, or too long.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOW_BITS:
        raise BadRequest(f"content-encoding {encoding!r} is not supported: send gzip or identity")
    unpacking = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        data = unpacking.decompress(body, BODY_BYTES_MAX + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not {encoding}: {error}") from None
    if len(data) > BODY_BYTES_MAX:
        raise BadRequest(f"the body is longer than {BODY_BYTES_MAX} bytes when it is unpacked")
    if not unpacking.eof:
        raise BadRequest(f"the body ends within its {encoding}")
    if unpacking.unused_data:
        raise BadRequest(f"there is something behind the body's {encoding}: send one member")
    return data


def parse(body: bytes) -> Logs:
    """Return the log records of an ExportLogsServiceRequest in JSON.

    Raises:
        BadRequest: the body is something else, or its lines are longer than `LINES_BYTES_MAX` bytes
            in all.
    """
    try:
        request = json_text.parse(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequest("the body is no ExportLogsServiceRequest")
    return logs_of(_groups(request))


def logs_of(groups: Iterable[Group], fields_of: Callable[[Any], Any] = lambda each: each) -> Logs:
    """Return the log records in *groups*. *fields_of* gives the form of OTLP's JSON to a record,
    which is asked for one after the other.

    Raises:
        BadRequest: there are more than `RECORDS_MAX`, or their lines have more than
            `LINES_BYTES_MAX`.
    """
    lines: list[tuple[str, bytes]] = []
    rejected = size = count = 0
    for resource, scope, records in groups:
        count += max(1, len(records))
        if count > RECORDS_MAX:
            raise BadRequest(f"there are more than {RECORDS_MAX} records or scopes: {FEWER}")
        if not records:
            continue
        service = _service(resource.get("resource"))
        head = _head(resource, scope)
        for each in records:
            record = fields_of(each)
            if not isinstance(record, dict):
                rejected += 1
                continue
            line = b'%b"record":%b}\n' % (head, json_of(record)[:-1])
            size += len(line)
            if size > LINES_BYTES_MAX:
                raise BadRequest(
                    f"the records, each with its resource, have more than {LINES_BYTES_MAX} "
                    f"bytes: {FEWER}"
                )
            lines.append((service, line))
    return Logs(lines, rejected)


def _groups(request: dict[str, Any]) -> Iterator[Group]:
    _check_has(request, "resourceLogs")
    for resource in _objects(request, "resourceLogs"):
        _check_has(resource, "scopeLogs", "resource", "schemaUrl")
        for scope in _objects(resource, "scopeLogs"):
            _check_has(scope, "logRecords", "scope", "schemaUrl")
            yield Group(resource, scope, _list(scope, "logRecords"))


def _check_has(value: dict[str, Any], name: str, *others: str) -> None:
    # Fields that are not known are left alone, as the protocol asks; but a request in snake_case or
    # of a former version, which has them in place of *name*, would lose its records with a 200.
    unknown = None if name in value else next((key for key in value if key not in others), None)
    if unknown is not None:
        raise BadRequest(f"there is no {name}, but {unknown!r:.40}")


def _head(resource: dict[str, Any], scope: dict[str, Any]) -> bytes:
    """Return how the lines of the records in *scope* begin."""
    fields = {
        "resource": resource.get("resource"),
        "resourceSchemaUrl": resource.get("schemaUrl"),
        "scope": scope.get("scope"),
        "scopeSchemaUrl": scope.get("schemaUrl"),
    }
    known = json_of({name: value for name, value in fields.items() if value})
    return known[:-2] + (b"," if len(known) > len(b"{}\n") else b"")


def _list(value: dict[str, Any], name: str) -> list[Any]:
    found = value.get(name) or []
    if not isinstance(found, list):
        raise BadRequest(f"{name} is no list")
    return found


def _objects(value: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    for each in _list(value, name):
        if not isinstance(each, dict):
            raise BadRequest(f"{name} holds something that is no object")
        yield each


def _service(resource: Any) -> str:
    """Return the value of the attribute `service.name`, or nothing."""
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    for attribute in attributes if isinstance(attributes, list) else ():
        if isinstance(attribute, dict) and attribute.get("key") == "service.name":
            value = attribute.get("value")
            if isinstance(value, dict) and isinstance(value.get("stringValue"), str):
                # JSON can hold half a character, which no name of a file can.
                return str(value["stringValue"]).encode(errors="replace").decode()
    return ""


def _accepted(rejected: int) -> bytes:
    if not rejected:
        return b"{}"
    why = "a log record has to be an object"
    # A 64-bit integer is a string in protobuf's JSON.
    partial = {"rejectedLogRecords": str(rejected), "errorMessage": why}
    return json.dumps({"partialSuccess": partial}).encode()


def _status(message: str) -> bytes:
    return json.dumps({"message": message}).encode()


JSON = Encoding("application/json", parse, _accepted, _status)
