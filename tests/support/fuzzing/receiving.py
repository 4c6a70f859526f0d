"""What receivers read of strangers: the parsers with what has to hold for their values."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from logpipeline import json_text
from logpipeline_cli.receiving import framing, redo, syslog
from logpipeline_cli.receiving.journal_entries import EntryReader, text_line
from logpipeline_cli.receiving.otlp import Logs

FRAME_BYTES_MAX = 100
ENTRY_BYTES_MAX = 1000
PIECE_BYTES = 7


def otlp(parse: Callable[[bytes], Logs]) -> Callable[[bytes], object]:
    """Return *parse*, whose lines are each a record in JSON."""

    def lines_of(raw: bytes) -> Logs:
        logs = parse(raw)
        for _, line in logs.lines:
            assert line.endswith(b"\n")
            assert isinstance(json_text.parse(line)["record"], dict)
        assert b"".join(line for _, line in logs.lines).count(b"\n") == len(logs.lines)
        return logs

    return lines_of


def message(raw: bytes) -> object:
    """Return the message *raw*, which is one line in both outputs."""
    found = syslog.parse(raw)
    line = syslog.json_line(found, received="t", sender="s", cut_bytes=0)
    assert line.count(b"\n") == syslog.raw_line(raw, 0).count(b"\n") == 1
    assert json_text.parse(line).get("message", "") == found.text
    return found


def frames(raw: bytes) -> object:
    """Return the messages of a connection, the same in any pieces."""
    whole, pieces = framing.Framer(FRAME_BYTES_MAX), framing.Framer(FRAME_BYTES_MAX)
    found = [*whole.feed(raw), *whole.end()]
    fed = [
        each
        for at in range(0, len(raw), PIECE_BYTES)
        for each in pieces.feed(raw[at : at + PIECE_BYTES])
    ]
    assert found == [*fed, *pieces.end()]
    assert all(len(each.data) <= FRAME_BYTES_MAX for each in found)
    return found


def entries(raw: bytes) -> object:
    """Return what *raw*, a line of journalctl, is."""
    found = EntryReader(ENTRY_BYTES_MAX).feed(raw + b"\n")
    for entry in found:
        assert entry.cursor
        assert entry.line.count(b"\n") == text_line(entry.line).count(b"\n") == 1
    return found


def redo_log(raw: bytes) -> object:
    """Return the records of a redo log that holds one with the meta data *raw* and the right
    checksum, as a receiver of another version writes it.
    """
    return list(redo.records_of(redo.framed(raw + b"\na\n", redo.Place("0" * 8))))


def _request() -> bytes:
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    logs.resource.attributes.add(key="service.name").value.string_value = "shop"
    record = logs.scope_logs.add().log_records.add(time_unix_nano=1, trace_id=b"\1" * 16)
    record.body.array_value.values.add().bytes_value = b"\xff"
    return bytes(request.SerializeToString())


OTLP_PROTOBUF = _request()
OTLP_JSON = b"""{"resourceLogs":[{
    "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
    "scopeLogs":[{"scope":{"name":"lib"},"schemaUrl":"s","logRecords":[
        {"timeUnixNano":"1","body":{"stringValue":"a\\nb"}}]}]}]}"""
OTLP_GZIP = gzip.compress(b"{}")
MESSAGES = (
    b'<165>1 2003-10-11T22:14:15.003Z host app 1 ID47 [a@1 b="c\\"" b="d"] text',
    b"<34>Oct 11 22:14:15 host su[1]: text",
)
FRAMES = b"9 <34>a b c<34>d\n11 <34>a\nb"
ENTRY = json.dumps(
    {
        "__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1795255200000000", "_HOSTNAME": "h",
        "SYSLOG_IDENTIFIER": "su", "_PID": "1", "MESSAGE": [97, 10],
    }
).encode()  # fmt: skip
