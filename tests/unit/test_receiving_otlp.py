"""Requests of OpenTelemetry's protocol: what is a log record in them, and what is refused."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.receiving import otlp
from logpipeline_cli.receiving.otlp import BadRequest, parse, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceLogs", "resource", "scopeLogs", "scope", "logRecords", "key",
                         "attributes", "value", "stringValue"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_taken_or_refused(body: bytes) -> None:
    """By the error that the answer tells; each record is one line."""
    try:
        logs = parse(body)
    except BadRequest:
        return
    assert all(line.count(b"\n") == 1 for _, line in logs.lines)


def test_a_deeply_nested_body_is_refused() -> None:
    """As any other that is no JSON."""
    with pytest.raises(BadRequest, match="nested too deeply"):
        parse(b"[" * 5000 + b"]" * 5000)


@pytest.mark.parametrize("body", [b"", b"x", gzip.compress(b"{}")[:-3], gzip.compress(b"x" * 101)])
def test_a_body_that_cannot_be_unpacked_is_refused(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged, cut, or longer than the limit when it is unpacked."""
    monkeypatch.setattr(otlp, "BODY_BYTES_MAX", 100)
    with pytest.raises(BadRequest):
        unpack(body, "gzip")


def test_a_body_is_unpacked_as_its_head_says() -> None:
    """Encodings that are not known are refused."""
    assert unpack(b"{}", "") == unpack(gzip.compress(b"{}"), "gzip") == b"{}"
    with pytest.raises(BadRequest, match="not supported"):
        unpack(b"", "zstd")
