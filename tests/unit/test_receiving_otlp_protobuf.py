"""Requests of OpenTelemetry's protocol in protobuf: the same lines as of its JSON."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from logpipeline_cli.receiving import otlp, otlp_protobuf
from logpipeline_cli.receiving.otlp import BadRequest, Logs
from logpipeline_cli.receiving.otlp_protobuf import parse

TRACE = bytes.fromhex("5b8efff798038103d269b633813fc60c")
SPAN = bytes.fromhex("eee19b7ec3c1b174")
# How the protocol's JSON writes each kind of value.
VALUES = {
    "text": (AnyValue(string_value="ä\n\0"), {"stringValue": "ä\n\0"}),
    "nothing": (AnyValue(string_value=""), {"stringValue": ""}),
    "yes": (AnyValue(bool_value=True), {"boolValue": True}),
    "no": (AnyValue(bool_value=False), {"boolValue": False}),
    "integer": (AnyValue(int_value=-(2**63)), {"intValue": "-9223372036854775808"}),
    "zero": (AnyValue(int_value=0), {"intValue": "0"}),
    "double": (AnyValue(double_value=0.1), {"doubleValue": 0.1}),
    "infinite": (AnyValue(double_value=float("-inf")), {"doubleValue": "-Infinity"}),
    "bytes": (AnyValue(bytes_value=b"\xff" * 16), {"bytesValue": "/////////////////////w=="}),
    "list": (
        AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a"), AnyValue()])),
        {"arrayValue": {"values": [{"stringValue": "a"}, {}]}},
    ),
    "map": (
        AnyValue(
            kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=1))])
        ),
        {"kvlistValue": {"values": [{"key": "k", "value": {"intValue": "1"}}]}},
    ),
}


def request_of(*records: LogRecord) -> ExportLogsServiceRequest:
    """Return a request with *records* of one service."""
    name = KeyValue(key="service.name", value=AnyValue(string_value="shop"))
    scope = ScopeLogs(
        scope=InstrumentationScope(name="lib", version="1"), schema_url="s", log_records=records
    )
    logs = ResourceLogs(
        resource=Resource(attributes=[name], dropped_attributes_count=2),
        schema_url="r",
        scope_logs=[scope],
    )
    return ExportLogsServiceRequest(resource_logs=[logs])


def parsed(request: ExportLogsServiceRequest) -> Logs:
    """Return what comes of *request* on its way."""
    return parse(request.SerializeToString())


def test_a_line_is_the_same_by_both_encodings() -> None:
    """Byte for byte, of a record with every field and every kind of value."""
    record = LogRecord(
        time_unix_nano=1544712660300000000,
        observed_time_unix_nano=2**64 - 1,
        severity_number=10,  # type: ignore[arg-type]  # as it is sent
        severity_text="Information",
        body=AnyValue(string_value="Example"),
        attributes=[KeyValue(key=key, value=value) for key, (value, _) in VALUES.items()],
        dropped_attributes_count=1,
        flags=1,
        trace_id=TRACE,
        span_id=SPAN,
        event_name="browser.page_view",
    )
    as_json = {
        "timeUnixNano": "1544712660300000000",
        "severityNumber": 10,
        "severityText": "Information",
        "body": {"stringValue": "Example"},
        "attributes": [{"key": key, "value": value} for key, (_, value) in VALUES.items()],
        "droppedAttributesCount": 1,
        "flags": 1,
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "observedTimeUnixNano": "18446744073709551615",
        "eventName": "browser.page_view",
    }
    name = {"key": "service.name", "value": {"stringValue": "shop"}}
    scope = {
        "scope": {"name": "lib", "version": "1"}, "logRecords": [as_json, {}], "schemaUrl": "s",
    }  # fmt: skip
    resource = {"attributes": [name], "droppedAttributesCount": 2}
    logs = {"resource": resource, "scopeLogs": [scope], "schemaUrl": "r"}

    found = parsed(request_of(record, LogRecord()))

    assert found == otlp.parse(json.dumps({"resourceLogs": [logs]}).encode())
    assert [service for service, _ in found.lines] == ["shop", "shop"]


def test_an_empty_request_has_no_records() -> None:
    """As exporters send it to find out whether someone is there."""
    assert parse(b"") == Logs([], 0)


def nested(depth: int) -> ExportLogsServiceRequest:
    """Return a request with a body of *depth* lists, one in the other."""
    request = request_of(LogRecord())
    value = request.resource_logs[0].scope_logs[0].log_records[0].body
    for _ in range(depth):
        value = value.array_value.values.add()
    return request


def test_a_deeply_nested_body_is_refused() -> None:
    """By the library's limit of 100 messages, up to which it is taken."""
    ((_, line),) = parsed(nested(48)).lines
    assert line.count(b"arrayValue") == 48
    with pytest.raises(BadRequest, match="no ExportLogsServiceRequest"):
        parsed(nested(49))


def test_a_text_that_is_not_utf8_is_refused() -> None:
    """Protobuf knows no such texts."""
    raw = request_of(LogRecord(severity_text="abc")).SerializeToString()
    with pytest.raises(BadRequest):
        parse(raw.replace(b"abc", b"a\xffc"))


def test_fields_that_are_not_known_are_counted() -> None:
    """They are left out of the line."""
    record = LogRecord(severity_text="abc")
    known = parsed(request_of(record))
    # Field 100 with three bytes.
    record.MergeFromString(b"\xa2\x06\x03xyz")

    found = parsed(request_of(record))

    assert found.lines == known.lines
    assert known.unknown_bytes == 0
    # The lengths around it may have grown by a byte each.
    assert found.unknown_bytes >= len(b"\xa2\x06\x03xyz")


def test_the_records_of_a_request_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted before they are converted, which takes most time and memory."""
    monkeypatch.setattr(otlp, "RECORDS_MAX", 3)
    assert len(parsed(request_of(*[LogRecord()] * 3)).lines) == 3

    def never(record: object) -> None:
        raise AssertionError(record)

    monkeypatch.setattr(otlp_protobuf, "_record_fields", never)
    with pytest.raises(BadRequest, match="more than 3 records"):
        parsed(request_of(*[LogRecord()] * 4))
