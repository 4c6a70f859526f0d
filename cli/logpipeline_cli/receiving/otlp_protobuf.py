"""Logs in OpenTelemetry's protocol, as protobuf: the same lines as of its JSON. Pure."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from logpipeline_cli.receiving.otlp import BadRequest, Encoding, Logs, logs_of

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
    return logs_of(_fields_of(request))._replace(unknown_bytes=size - request.ByteSize())


def _fields_of(request: Any) -> dict[str, Any]:
    """Return *request* in the form of OTLP's JSON."""
    fields: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    resources = zip(request.resource_logs, fields.get("resourceLogs", ()), strict=True)
    for resource, resource_fields in resources:
        scopes = zip(resource.scope_logs, resource_fields.get("scopeLogs", ()), strict=True)
        for scope, scope_fields in scopes:
            records = zip(scope.log_records, scope_fields.get("logRecords", ()), strict=True)
            for record, record_fields in records:
                for name in _IDS.keys() & record_fields.keys():
                    record_fields[name] = getattr(record, _IDS[name]).hex()
    return fields


def _accepted(rejected: int) -> bytes:
    # A damaged record makes the whole request unreadable: no single one is left out.
    assert not rejected
    return bytes(ExportLogsServiceResponse().SerializeToString())


def _status(message: str) -> bytes:
    return bytes(Status(message=message).SerializeToString())


PROTOBUF = Encoding("application/x-protobuf", parse, _accepted, _status)
