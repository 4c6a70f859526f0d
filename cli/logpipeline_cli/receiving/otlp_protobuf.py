"""Logs in OpenTelemetry's protocol, as protobuf: the same lines as of its JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from logpipeline_cli.receiving.otlp import BadRequest, Encoding, Group, Logs, logs_of

# OTLP's JSON differs from protobuf's in these: they are hexadecimal, and all other bytes base64.
_IDS = {"traceId": "trace_id", "spanId": "span_id"}


def parse(body: bytes) -> Logs:
    """Return the log records of an ExportLogsServiceRequest in protobuf.

    Raises:
        BadRequest: the body is something else, or its lines are longer than `LINES_BYTES_MAX` bytes
            in all.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadRequest(f"the body is no ExportLogsServiceRequest: {error}") from None
    size = request.ByteSize()
    request.DiscardUnknownFields()
    logs = logs_of(_groups(request), _record_fields)
    return logs._replace(unknown_bytes=size - request.ByteSize())


def _groups(request: Any) -> Iterator[Group]:
    for logs in request.resource_logs:
        resource: dict[str, Any] | None = None
        for scope_logs in logs.scope_logs:
            if resource is None:
                resource = {"resource": _fields(logs.resource), "schemaUrl": logs.schema_url}
            scope = {"scope": _fields(scope_logs.scope), "schemaUrl": scope_logs.schema_url}
            yield Group(resource, scope, scope_logs.log_records)


def _fields(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    return fields


def _record_fields(record: Any) -> dict[str, Any]:
    """Return *record* in the form of OTLP's JSON."""
    fields = _fields(record)
    for name in _IDS.keys() & fields.keys():
        fields[name] = getattr(record, _IDS[name]).hex()
    return fields


def _accepted(rejected: int) -> bytes:
    # A damaged record makes the whole request unreadable: no single one is left out.
    assert not rejected
    return bytes(ExportLogsServiceResponse().SerializeToString())


def _status(message: str) -> bytes:
    return bytes(Status(message=message).SerializeToString())


PROTOBUF = Encoding("application/x-protobuf", parse, _accepted, _status)
