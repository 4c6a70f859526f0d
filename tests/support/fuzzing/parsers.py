"""Every parser of bytes that another process wrote, with texts that it takes and the errors that it
documents.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import zstandard

from fuzzing import receiving
from logpipeline import backlog, cri, dead_letters, deduplication, multiline, quantity, wire
from logpipeline.checksum import Checksum
from logpipeline.consuming.records import Claim, ReadProgress, position_of, position_text
from logpipeline.deduplication import decide
from logpipeline.layout import Component, Layout, NoPipeline, RunRecord
from logpipeline.nats.session import ProtocolError, RawMessage, Session
from logpipeline.observe import logs
from logpipeline.partition import PartitionRange
from logpipeline.records import (
    Assignment,
    BadRecord,
    Committed,
    EpochRecord,
    EpochStart,
    Former,
    GoneFolder,
    Named,
    Progress,
    Question,
    Reached,
    StreamPosition,
    Succession,
)
from logpipeline.spec import SpecError, parse
from logpipeline.spec.documents import documents_of
from logpipeline.statefile import StateBroken, read_state
from logpipeline.subjects import BadHost, BadSubject, Subjects, root_of
from logpipeline.tables.progress import Missed, MissedRange, TableProgress
from logpipeline_cli.receiving import otlp, otlp_protobuf
from logpipeline_cli.receiving.redo import SpoolBroken
from logpipeline_collector.files.naming import component, folders
from logpipeline_collector.files.state import FileRow, Stage
from logpipeline_collector.sink import LocalCommit
from logpipeline_collector.snapshots import Manifest, SnapshotBroken
from logpipeline_collector.sources import BadSnapshot, decode_snapshot, encode_snapshot
from logpipeline_operator.callout.claims import BadRequest, Request
from logpipeline_operator.callout.refusals import Cause, Refusals
from logpipeline_operator.callout.tokens import BadToken, Keys
from logpipeline_shipper import checkpoint
from logpipeline_shipper.files.rotation_names import rotation_of
from logpipeline_spark.errors import Damaged
from logpipeline_spark.source.offsets import read_offsets, read_timestamps
from logpipeline_spark.table import state as table_state
from logpipeline_spark.table.files import BadName, FileName, hour_of
from logpipeline_spark.table.storage import Storage

EXAMPLE_POSITION = StreamPosition("2026-11-25T20:00:00Z", 17, 1_795_255_200_000_000_000)
EXAMPLE_BATCH = wire.Batch(
    source="/var/log/app.log", generation="0123456789abcdef", start=0, end=6, lines=2,
    format="plain", checksums=wire.Checksums.around(b"a\nbcd\n", Checksum(0)),
    previous=wire.Previous("0123456789abcdef", 7), pod="web-1", labels=(("app", "web"),),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """A parser of foreign bytes: *parse* returns a value or raises one of *errors*. *examples* are
    what it takes. Where there is an encoder, *encode* returns what `parse` reads back as the same
    value. *is_json*: its bytes are JSON, which is also changed value by value. *is_typed*: a value
    has the types that it declares.
    """

    name: str
    parse: Callable[[bytes], object]
    examples: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()
    encode: Callable[[Any], bytes] | None = None
    is_json: bool = False
    is_typed: bool = True


def _headers(raw: bytes) -> wire.Batch | None:
    return wire.decode_headers(wire.parse_headers(raw))


def _raw_headers(fields: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode("utf-8", "surrogateescape")


def _encoded_headers(batch: wire.Batch | None) -> bytes:
    return _raw_headers({} if batch is None else wire.encode_headers(batch, "id"))


def _payload(raw: bytes) -> bytes:
    data = wire.decode_payload(replace(EXAMPLE_BATCH, compressed=True), raw)
    assert len(data) == EXAMPLE_BATCH.end - EXAMPLE_BATCH.start
    return data


def _cri(raw: bytes) -> object:
    cut = cri.last_cut(raw)
    assert 0 <= cut <= len(raw)
    assert cut == 0 or raw[cut - 1 : cut] == b"\n"
    lines = list(cri.join(raw))
    assert sum(len(line.text) for line in lines) <= len(raw)
    assert isinstance(cri.time_ns(raw), int)
    return lines


def _state_file(raw: bytes) -> object:
    with TemporaryDirectory() as folder:
        path = Path(folder, "state")
        path.write_bytes(raw)
        return read_state(path, "kind", 1)


def _checkpoint(raw: bytes) -> object:
    # With the right checksum: what a shipper of another version, or another program, wrote.
    kind, version = checkpoint._KIND, checkpoint._VERSION
    head = f"{kind} {version} {zlib.crc32(raw):08x} {len(raw)}\n".encode()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / kind).write_bytes(head + raw)
        found = checkpoint.load(folder, "boot")
    return found.was_broken, found.groups, found.rollbacks


def _intents(raw: bytes) -> object:
    with TemporaryDirectory() as name:
        folder = Path(name)
        intents = checkpoint.IntentLog(folder, "boot")
        intents.begin(1)
        intents.close()
        path = checkpoint._path(folder, 1)
        path.write_bytes(path.read_bytes() + raw)
        return checkpoint.read_noted(folder, 1, "boot")


def _run_record(raw: bytes) -> object:
    with TemporaryDirectory() as name:
        layout = Layout(Path(name))
        layout.run_file.write_bytes(raw)
        return RunRecord.read(layout)


def _resource(raw: bytes) -> object:
    return [parse(document.content) for document in documents_of(raw)]


class _Held:
    """A storage that holds one object under each path."""

    url = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: str) -> bytes:
        return self._data


def _framed_state(raw: bytes) -> bytes:
    packed = zstandard.ZstdCompressor().compress(raw)
    return f"state {table_state.VERSION} {zlib.crc32(packed):08x} {len(packed)}\n".encode() + packed


def _stored_table_state(raw: bytes) -> object:
    return table_state.States(cast("Storage", _Held(raw))).load(1)


def _snapshot(raw: bytes) -> object:
    # With the right checksum, in the right frame.
    return decode_snapshot(
        zlib.crc32(raw).to_bytes(4, "big") + zstandard.ZstdCompressor().compress(raw)
    )


def _events(raw: bytes) -> object:
    lines = raw.decode("utf-8", "surrogateescape").split("\n")
    events = list(multiline.events_of(lines, multiline.chosen([multiline.AUTO])))
    assert [line for event in events for line in event] == lines
    return events


def _own_rules(raw: bytes) -> object:
    text = raw.decode("utf-8", "surrogateescape")
    return list(multiline.events_of(["a", "b"], multiline.chosen(begin=text)))


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """Return a parser of bytes, where *parse* takes text: any text."""
    return lambda raw: parse(raw.decode("utf-8", "surrogateescape"))


def _quantity(text: str) -> object:
    try:
        count = quantity.parse_bytes(text)
    except quantity.QuantityError:
        return quantity.parse_duration(text)
    assert quantity.parse_bytes(quantity.format_bytes(count)) == count
    return count


def _token(text: str) -> object:
    return Keys({}).read(text, "audience")


def _messages(raw: bytes) -> object:
    found: list[RawMessage] = []
    session = Session(lambda _: None, lambda _: None)
    for sid in range(10):
        session._sinks[sid] = found.append
    asyncio.run(session._ps.parse(raw))
    assert sum(len(each.data) + len(each.headers) for each in found) <= len(raw)
    return found


def _folder_names(text: str) -> object:
    host = component(text)
    path = folders(text)
    parts = [host, *path.split("/")]
    assert not {"", ".", ".."} & set(parts)
    assert all("\0" not in part and len(part.encode()) <= 255 for part in parts)
    return parts


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


KNOWN = decide(deduplication.SourceState(), EXAMPLE_BATCH).after
REACHED = Reached(EXAMPLE_POSITION, 1)
SUCCESSION = Succession(
    REACHED, REACHED, (Former("m", "f", 3, None, REACHED),), (GoneFolder("m", "f", 1, 2, 3, 4),)
)
EPOCH = EpochRecord(
    epoch=2, owner="collector-0", incarnation="collector-0-1", assignment=1,
    position=EXAMPLE_POSITION, history=(EpochStart(1, 0),), begun=3, begun_ns=4, lost_bytes=5,
    missing_bytes=6, missed_messages=7, refused=(8,),
)  # fmt: skip
PROGRESS = Progress(
    "g", 1, 2, 0,
    (Committed("/a", "0123456789abcdef", 9, (("0123456789abcdef", 1, 2),), 1, Checksum(1)),),
    unknown=(Named("/a", "x"),), max_age_s=1.5,
)  # fmt: skip
LETTER = dead_letters.Letter(
    reason="bad-headers", detail="why", stream="LOGS_0", created="2026", sequence=7, time_ns=8,
    subject="logs.p0.h", headers=b"NATS/1.0\r\na: \xff\r\n\r\n", payload=b"", payload_bytes=0,
    consumer="c",
)  # fmt: skip
ADVISORY = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver", "id": "x", "stream": "LOGS_0",
    "timestamp": "2026-11-25T20:00:00.5Z", "consumer": "c", "stream_seq": 5, "deliveries": 3,
}  # fmt: skip
SAVED = {
    "sources": [
        json.dumps(
            {
                "host": "h", "source": "/a", "saved": None, "births": [["birth"]],
                "intents": [["0123456789abcdef", 0, 6, "", "0123456789abcdef"]],
                "account": {}, "absent": None,
            }
        )
    ],
    "groups": {"h": {"g": 1}}, "acks": {"s": ["a", 1, 2]}, "rollbacks": {"s": 1}, "intents": 1,
}  # fmt: skip
RESOURCE = b"""apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata: {name: web, namespace: shop}
spec:
  stream: {maxAge: 1d, maxBytes: 10Gi}
  collectors: {replicas: 2, rotation: {maxBytes: 64Mi}}
"""
TABLE_STATE = table_state._data_of(table_state.State(transaction=1, holder="h", whole=1)) | {
    "rows": {"LOGS_0": {'["h","/a"]': {}}}
}
LOGIN = {
    "nats": {
        "type": "authorization_request", "user_nkey": "U", "server_id": {"id": "N"},
        "connect_opts": {"auth_token": "t"}, "client_info": {"host": "10.0.0.1"},
    }
}  # fmt: skip
REFUSED = Refusals("callout-0")
REFUSED.note(Cause.NO_TOKEN, "10.0.0.1")
WIRE = (
    Parser(
        name="messages", parse=_messages, errors=(ProtocolError,), is_typed=False,
        examples=(b"MSG a.b 1 5\r\nhello\r\n", b"HMSG a 1 b.c 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    ),
    Parser(
        name="headers", parse=_headers, errors=(wire.BadMessage,), encode=_encoded_headers,
        examples=(_encoded_headers(EXAMPLE_BATCH), b"", b"NATS/1.0\r\n\r\n"),
    ),
    Parser(
        name="frames", parse=_payload, errors=(wire.BadMessage,),
        examples=(zstandard.ZstdCompressor().compress(b"a\nbcd\n"), b"a\nbcd\n"),
    ),
    Parser(
        name="subjects", parse=_text(Subjects("logs", 32).read), errors=(BadSubject, BadHost),
        examples=(b"logs.p0.host", b"logs.p31.a.b"),
    ),
    Parser(name="filters", parse=_text(root_of), examples=(b"logs.p0.>",)),
    Parser(
        name="letters", parse=lambda raw: dead_letters.decode(raw, b""),
        errors=(dead_letters.NoLetter, wire.BadMessage),
        encode=lambda letter: _raw_headers(dead_letters.encode(letter)),
        examples=(_raw_headers(dead_letters.encode(LETTER)),),
    ),
    Parser(
        name="advisories", parse=dead_letters.parse, errors=(dead_letters.NoAdvisory,),
        examples=(_compact(ADVISORY),), is_json=True,
    ),
)  # fmt: skip
RECORDS = (
    Parser(
        name="epochs", parse=EpochRecord.decode, errors=(BadRecord,), encode=EpochRecord.encode,
        examples=(EPOCH.encode(),), is_json=True,
    ),
    Parser(
        name="successions", parse=_text(Succession.decode),
        encode=lambda found: b"" if found is None else found.encode().encode(),
        examples=(SUCCESSION.encode().encode(),), is_json=True,
    ),
    Parser(
        name="assignments", parse=Assignment.decode, errors=(BadRecord,), encode=Assignment.encode,
        examples=(Assignment(1, 2, (("m", PartitionRange(0, 2)),), "shop/web").encode(),),
        is_json=True,
    ),
    Parser(
        name="questions", parse=Question.decode, errors=(BadRecord,), is_json=True,
        encode=Question.encode, examples=(Question((Named("/a", "x"),)).encode(), b""),
    ),
    Parser(
        name="progress", parse=Progress.decode, errors=(BadRecord,), encode=Progress.encode,
        examples=(PROGRESS.encode(),), is_json=True,
    ),
    Parser(
        name="claims", parse=Claim.decode, errors=(BadRecord,), encode=Claim.encode, is_json=True,
        examples=(
            Claim(
                epoch=1, owner="a", incarnation="b", progress=ReadProgress(EXAMPLE_POSITION, 3)
            ).encode(),
        ),
    ),
    Parser(
        name="reader-positions", parse=_text(position_of), errors=(BadRecord,),
        encode=lambda position: position_text(position).encode("utf-8", "surrogateescape"),
        examples=(position_text(EXAMPLE_POSITION).encode(),),
    ),
    Parser(
        name="tables", parse=TableProgress.decode, errors=(BadRecord,), is_json=True,
        encode=TableProgress.encode,
        examples=(
            TableProgress(
                path="/t", commit=1, rows=2, at_ns=3, streams={"LOGS_0": EXAMPLE_POSITION}
            ).encode(),
        ),
    ),
    Parser(
        name="missed", parse=Missed.decode, errors=(BadRecord,), encode=Missed.encode,
        is_json=True,
        examples=(
            Missed()
            .with_range("LOGS_0", MissedRange(created="2026", first=1, last=2, at_ns=3))
            .encode(),
        ),
    ),
    Parser(
        name="manifests", parse=Manifest.decode, errors=(SnapshotBroken,), encode=Manifest.encode,
        examples=(Manifest(1, 0, EXAMPLE_POSITION, {"m": 1}, 5, "aa", (1, 2)).encode(),),
        is_json=True,
    ),
    Parser(
        name="questions-of-backlogs", parse=backlog.asked, examples=(backlog.question(),),
        is_json=True,
    ),
    Parser(
        name="backlogs", parse=backlog.decode, is_json=True,
        examples=(backlog.ShipperBacklog("s", "", {"h": (1, 2.0)}).encode(),),
    ),
    Parser(
        name="refusals", parse=Refusals.decode, is_json=True, is_typed=False,
        examples=(REFUSED.encode(),),
    ),
)  # fmt: skip
FILES = (
    Parser(
        name="cri", parse=_cri,
        examples=(
            b"2026-11-25T20:00:00.123456789Z stdout F a\n2026-11-25T20:00:00+01:00 stderr P b\n",
        ),
    ),
    Parser(
        name="state-files", parse=_state_file, errors=(StateBroken,),
        examples=(f"kind 1 {zlib.crc32(b'{}'):08x} 2\n{{}}".encode(),),
    ),
    Parser(name="checkpoints", parse=_checkpoint, examples=(_compact(SAVED),), is_json=True),
    Parser(
        name="intents", parse=_intents,
        examples=(
            b'["h","/a",["birth"]]\n["h","/a","g",0,6,"","0123456789abcdef"]\n',
        ),
    ),
    Parser(
        name="run-records", parse=_run_record, errors=(NoPipeline,), is_json=True,
        examples=(
            _compact(asdict(RunRecord("n", "s", 1, "u", components=[Component("c", 1, "a")]))),
        ),
    ),
    Parser(
        name="commits", parse=_text(LocalCommit.decode), errors=(ValueError, TypeError),
        encode=lambda commit: commit.encode().encode(), is_json=True,
        examples=(LocalCommit(1, 2, EXAMPLE_POSITION, 0, (1, REACHED)).encode().encode(),),
    ),
    Parser(
        name="file-rows", parse=_text(FileRow.decode), errors=(ValueError, TypeError),
        encode=lambda row: row.encode().encode(), is_json=True,
        examples=(FileRow("p", "p", "h", Stage.ACTIVE, 1, 2).encode().encode(),),
    ),
    Parser(
        name="snapshots", parse=_snapshot, errors=(BadSnapshot,), is_json=True,
        examples=(
            _compact(
                {"version": 1, "sources": [[["h", "/a"], deduplication.encode(KNOWN)]]}
            ),
        ),
    ),
    Parser(
        name="stored-snapshots", parse=decode_snapshot, errors=(BadSnapshot,),
        examples=(encode_snapshot([('["h","/a"]', json.dumps(deduplication.encode(KNOWN)))]),),
    ),
    Parser(
        name="table-states", parse=lambda raw: _stored_table_state(_framed_state(raw)),
        errors=(Damaged,), is_json=True,
        examples=(_compact(TABLE_STATE),),
    ),
    Parser(
        name="stored-table-states", parse=_stored_table_state, errors=(Damaged,),
        examples=(_framed_state(_compact(TABLE_STATE)),),
    ),
    Parser(
        name="names-in-tables", parse=_text(FileName.parse), errors=(BadName,),
        encode=lambda name: str(name).encode(),
        examples=(b"LOGS_0.18bcr0-1-20.w3.and2.part1.try1.resent.parquet",),
    ),
    Parser(
        name="hours", parse=_text(hour_of), errors=(BadName,),
        examples=(b"lines/dt=2026-11-25/hour=20",),
    ),
    Parser(name="state-numbers", parse=_text(table_state.number_of), examples=(b"state/1.state",)),
    Parser(name="folders", parse=_text(_folder_names), examples=(b"/var/log/app.log", b"../a")),
    Parser(
        name="rotations", parse=_text(rotation_of), is_typed=False,
        examples=(b"app.log.1.gz", b"a-20261121"),
    ),
)  # fmt: skip
TEXTS = (
    Parser(name="resources", parse=_resource, errors=(SpecError,), examples=(RESOURCE,)),
    Parser(
        name="quantities", parse=_text(_quantity), errors=(quantity.QuantityError,),
        examples=(b"10Gi", b"1.5M", b"1h30m", b"200ms"),
    ),
    Parser(
        name="events", parse=_events,
        examples=(b"ERROR x\njava.lang.E: y\n\tat a.b(C.java:1)\n", b"panic: x\n\ngoroutine 1:"),
    ),
    Parser(name="rules", parse=_own_rules, errors=(ValueError,), examples=(b"^[0-9]{4}-",)),
    Parser(
        name="offsets", parse=_text(lambda text: read_offsets(text, ())), errors=(ValueError,),
        examples=(b'{"LOGS_0":1}', b"latest"), is_json=True,
    ),
    Parser(
        name="timestamps", parse=_text(lambda text: read_timestamps(text, ())),
        errors=(ValueError,), examples=(b'{"LOGS_0":1795255200000}',), is_json=True,
    ),
    Parser(
        name="log-records", parse=_text(logs.text_of), is_json=True,
        examples=(b'{"time":"t","level":"info","component":"c","message":"m","a":1}',),
    ),
    Parser(
        name="login-requests", parse=Request.decode, errors=(BadRequest,),
        examples=(b"e30." + base64.urlsafe_b64encode(_compact(LOGIN)).rstrip(b"=") + b".sig",),
    ),
    Parser(
        name="tokens", parse=_text(_token), errors=(BadToken,),
        examples=(b"eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AA",),
    ),
)  # fmt: skip
RECEIVERS = (
    Parser(
        name="otlp-json", parse=receiving.otlp(otlp.parse), errors=(otlp.BadRequest,),
        examples=(receiving.OTLP_JSON,), is_json=True,
    ),
    Parser(
        name="otlp-protobuf", parse=receiving.otlp(otlp_protobuf.parse),
        errors=(otlp.BadRequest,), examples=(receiving.OTLP_PROTOBUF,),
    ),
    Parser(
        name="otlp-gzip", parse=lambda raw: otlp.unpack(raw, "gzip"), errors=(otlp.BadRequest,),
        examples=(receiving.OTLP_GZIP,),
    ),
    Parser(name="syslog", parse=receiving.message, examples=receiving.MESSAGES),
    Parser(name="syslog-frames", parse=receiving.frames, examples=(receiving.FRAMES,)),
    Parser(
        name="journal", parse=receiving.entries, examples=(receiving.ENTRY,), is_json=True,
    ),
    Parser(
        name="redo-logs", parse=receiving.redo_log, errors=(SpoolBroken,),
        examples=(b'{"writes":[["a.log",0,2]],"state":{"cursor":"c"}}',), is_json=True,
    ),
)  # fmt: skip
PARSERS = {parser.name: parser for parser in (*WIRE, *RECORDS, *FILES, *TEXTS, *RECEIVERS)}
