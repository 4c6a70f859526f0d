"""Requests of OpenTelemetry's protocol: what is a log record in them, and what is refused."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.receiving import otlp
from logpipeline_cli.receiving.otlp import BadRequest, Logs, parse, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceLogs", "resource", "scopeLogs", "scope", "logRecords", "key",
                         "attributes", "value", "stringValue"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip

PACKED = gzip.compress(b"{}")


def request_of(record: object, **resource: object) -> bytes:
    """Return a request with *record*, whose resource logs hold *resource* as well."""
    logs = {"scopeLogs": [{"logRecords": [record]}], **resource}
    return json.dumps({"resourceLogs": [logs]}).encode()


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_taken_or_refused(body: bytes) -> None:
    """By the error that the answer tells; each record is one line."""
    try:
        logs = parse(body)
    except BadRequest:
        return
    assert all(line.count(b"\n") == 1 for _, line in logs.lines)


def test_a_deeply_nested_body_is_refused() -> None:
    """As any other that is not JSON."""
    with pytest.raises(BadRequest, match="nested too deeply"):
        parse(b"[" * 5000 + b"]" * 5000)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends within"), (b"x" * 30, "not gzip"), (PACKED[:-3], "ends within"),
        (gzip.compress(b"x" * 101), "longer"), (PACKED + PACKED, "behind"),
    ],
    # Packed bytes hold the time, and each process of a run has to find the same tests.
    ids=["nothing", "unpacked", "cut", "long", "two"],
)  # fmt: skip
def test_a_body_that_cannot_be_unpacked_is_refused(
    body: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged, cut, longer than the limit when it is unpacked, or followed by what is not read."""
    monkeypatch.setattr(otlp, "BODY_BYTES_MAX", 100)
    with pytest.raises(BadRequest, match=why):
        unpack(body, "gzip")


def test_a_body_of_the_limit_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one byte less."""
    monkeypatch.setattr(otlp, "BODY_BYTES_MAX", 100)
    assert unpack(gzip.compress(b"x" * 100), "gzip") == b"x" * 100


def test_a_body_is_unpacked_as_its_head_says() -> None:
    """Encodings that are not known are refused."""
    assert unpack(b"{}", "") == unpack(gzip.compress(b"{}"), "gzip") == b"{}"
    assert unpack(zlib.compress(b"{}"), "deflate") == b"{}"
    with pytest.raises(BadRequest, match="not supported"):
        unpack(b"", "zstd")


def test_a_line_holds_all_that_belongs_to_its_record() -> None:
    """Resource and scope, and the schemas that both are written by; nothing where there is none."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    scope = {"scope": {"name": "lib"}, "schemaUrl": "s", "logRecords": [{"body": {}}, {}]}
    logs = {"resource": resource, "schemaUrl": "r", "scopeLogs": [scope]}

    found = parse(json.dumps({"resourceLogs": [logs]}).encode())

    around = {
        "resource": resource, "resourceSchemaUrl": "r", "scope": {"name": "lib"},
        "scopeSchemaUrl": "s",
    }  # fmt: skip
    assert [service for service, _ in found.lines] == ["shop", "shop"]
    assert [json.loads(line) for _, line in found.lines] == [
        around | {"record": {"body": {}}}, around | {"record": {}},
    ]  # fmt: skip
    assert parse(request_of({})).lines == [("", b'{"record":{}}\n')]


@pytest.mark.parametrize("attributes", [7, True, "x", {"key": "service.name"}, [None, 7]])
def test_a_resource_of_another_form_has_no_service(attributes: object) -> None:
    """Its records are kept as they came."""
    ((service, line),) = parse(request_of({}, resource={"attributes": attributes})).lines

    assert service == ""
    assert json.loads(line)["resource"] == {"attributes": attributes}


def test_a_request_of_unknown_fields_is_refused() -> None:
    """With a 200 it would lose its records; fields beside known ones are left alone."""
    with pytest.raises(BadRequest, match="no resourceLogs, but 'resource_logs'"):
        parse(b'{"resource_logs":[{}]}')
    assert parse(b'{"resourceLogs":[],"new":1}') == parse(b"{}") == Logs([], 0)


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        ({"scope_logs": [{}]}, "no scopeLogs, but 'scope_logs'"),
        ({"resource": {}, "instrumentationLibraryLogs": []}, "but 'instrumentationLibraryLogs'"),
        ({"scopeLogs": [{"scope": {}, "log_records": [{}]}]}, "no logRecords, but 'log_records'"),
    ],
)
def test_unknown_fields_instead_of_records_are_refused(
    resource: dict[str, object], why: str
) -> None:
    """At each level: a former version has other names. What holds no records is no mistake."""
    with pytest.raises(BadRequest, match=why):
        parse(json.dumps({"resourceLogs": [resource]}).encode())
    known = {"resource": {}, "schemaUrl": "", "scopeLogs": [{"scope": {}, "schemaUrl": ""}, {}]}
    assert parse(json.dumps({"resourceLogs": [{}, {"resource": {}}, known]}).encode()).lines == []


def test_the_lines_of_a_request_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds its resource, so that a short request may have long lines."""
    monkeypatch.setattr(otlp, "LINES_BYTES_MAX", 1000)
    resource = {"schemaUrl": "x" * 100, "scopeLogs": [{"logRecords": [{}] * 9}]}
    with pytest.raises(BadRequest, match="send fewer at once"):
        parse(json.dumps({"resourceLogs": [resource]}).encode())


def test_the_records_of_a_request_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty ones are a few bytes of a packed request, and a hundred times as much as lines."""
    monkeypatch.setattr(otlp, "RECORDS_MAX", 3)

    def request(*records: int) -> bytes:
        scopes: list[dict[str, object]] = [{"logRecords": [{}] * count} for count in records]
        return json.dumps({"resourceLogs": [{"scopeLogs": scopes}]}).encode()

    assert len(parse(request(3)).lines) == 3
    for records in ((4,), (2, 2), (0, 0, 0, 0)):
        with pytest.raises(BadRequest, match="more than 3 records or scopes: send fewer at once"):
            parse(request(*records))


def test_a_resource_without_records_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one before many empty scopes would be encoded for each of them."""
    monkeypatch.delattr(otlp, "_head")
    resource = {"schemaUrl": "x" * 100, "scopeLogs": [{"logRecords": []}] * 9}

    assert parse(json.dumps({"resourceLogs": [resource]}).encode()).lines == []
