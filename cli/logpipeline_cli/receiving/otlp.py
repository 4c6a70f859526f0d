"""Logs in OpenTelemetry's protocol, as JSON: one line for each log record. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline_cli.receiving.syslog import json_of

# A collector's exporter sends some 8,192 records at once, which are a few megabytes.
BODY_BYTES_MAX = 16 * 1024 * 1024
# How zlib is asked for gzip's format.
_GZIP = 16 + zlib.MAX_WBITS


class BadRequest(ValueError):
    """A request that no repetition makes better; the message says what is wrong with it."""


class Logs(NamedTuple):
    """The lines of a request, each with the name of its service. *rejected* records were none."""

    lines: list[tuple[str, bytes]]
    rejected: int


def unpack(body: bytes, encoding: str) -> bytes:
    """Return *body* without its content *encoding*.

    Raises:
        BadRequest: it is of another encoding, damaged, or too long.
    """
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadRequest(f"content-encoding {encoding!r} is not supported: send gzip or identity")
    unpacking = zlib.decompressobj(_GZIP)
    try:
        data = unpacking.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise BadRequest(f"the body is not gzip: {error}") from None
    if not unpacking.eof:
        raise BadRequest(f"the body is cut, or longer than {BODY_BYTES_MAX} bytes")
    return data


def parse(body: bytes) -> Logs:
    """Return the log records of an ExportLogsServiceRequest in JSON.

    Raises:
        BadRequest: it is no such request.
    """
    try:
        request = json_text.parse(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise BadRequest("the body is no ExportLogsServiceRequest")
    lines: list[tuple[str, bytes]] = []
    rejected = 0
    for resource in _objects(request, "resourceLogs"):
        of = resource.get("resource")
        service = _service(of)
        for scope in _objects(resource, "scopeLogs"):
            head = {"resource": of, "scope": scope.get("scope")}
            for record in _list(scope, "logRecords"):
                if isinstance(record, dict):
                    known = {name: value for name, value in head.items() if value}
                    lines.append((service, json_of(known | {"record": record})))
                else:
                    rejected += 1
    return Logs(lines, rejected)


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
    if not isinstance(resource, dict):
        return ""
    for attribute in resource.get("attributes") or ():
        if isinstance(attribute, dict) and attribute.get("key") == "service.name":
            value = attribute.get("value")
            if isinstance(value, dict) and isinstance(value.get("stringValue"), str):
                return str(value["stringValue"])
    return ""
