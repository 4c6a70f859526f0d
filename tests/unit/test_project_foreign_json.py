"""JSON that is nested some thousand levels deep, at every place that reads JSON of other processes:
it is refused, or left out, as any other text that is no JSON. It ended the task that read it.
"""

from __future__ import annotations

import base64
import http.server
import re
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard

from logpipeline import backlog, dead_letters, embedded, statefile
from logpipeline.consuming.records import Claim
from logpipeline.layout import Layout, NoPipeline, RunRecord
from logpipeline.nats import jetstream
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.jetstream import ANSWER_VALUES_MAX, HEADER_LINES_MAX
from logpipeline.nats.session import ProtocolError, RawMessage, Session, SinkParser
from logpipeline.observe import logs
from logpipeline.records import Assignment, BadRecord, EpochRecord, Progress, Question, Succession
from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import Missed, TableProgress
from logpipeline_cli import losses
from logpipeline_cli.auditing import sides
from logpipeline_cli.cluster import api
from logpipeline_cli.cluster.agent_client import AgentPod, rows_of
from logpipeline_cli.cluster.kubectl import Kubectl
from logpipeline_cli.dead_letters import sending
from logpipeline_cli.errors import CliError
from logpipeline_collector import sources
from logpipeline_collector.files import committed, state
from logpipeline_collector.sink import LocalCommit
from logpipeline_collector.snapshots import Manifest, SnapshotBroken
from logpipeline_operator import jetstream as monitoring
from logpipeline_operator.callout.claims import BadRequest, Request
from logpipeline_operator.callout.refusals import Refusals
from logpipeline_operator.callout.store import StoreWatch
from logpipeline_operator.callout.tokens import BadToken, Keys
from logpipeline_operator.cluster import client as cluster
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.foreign_fields import managers
from logpipeline_shipper import checkpoint
from logpipeline_shipper.kubernetes import client, pods
from logpipeline_spark.errors import Damaged
from logpipeline_spark.formats.delta import DeltaLog
from logpipeline_spark.job.stream_state import StreamState
from logpipeline_spark.source import offsets
from logpipeline_spark.table.state import VERSION, States, _path
from logpipeline_spark.table.storage import LocalStorage

ROOT = Path(__file__).parents[2]
COMPONENTS = ("core", "shipper", "collector", "operator", "spark", "cli")
DEEP = "[" * 5000 + "]" * 5000
DEEP_FIELD = '{"a":' * 5000 + "1" + "}" * 5000


def test_no_other_module_parses_json_by_itself() -> None:
    """The parser of the standard library and its wrappers raise what no reader expects."""
    parsing = re.compile(r"(?<!or)json\.loads?\(|\.json\(\)")
    modules = [path for folder in COMPONENTS for path in (ROOT / folder).rglob("*.py")]

    assert [path.name for path in modules if parsing.search(path.read_text())] == []


@pytest.fixture(params=[DEEP, DEEP_FIELD], ids=["lists", "objects"])
def deep(request: pytest.FixtureRequest) -> str:
    """A text that is JSON, and nested more deeply than any program here writes it."""
    text: str = request.param
    return text


@pytest.fixture
def page(deep: str) -> Iterator[int]:
    """The port of a server that answers each request with this text."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if self.path == "/healthz" else 200)
            self.end_headers()
            self.wfile.write(deep.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


RECORDS: list[tuple[Callable[[bytes], object], type[Exception]]] = [
    (EpochRecord.decode, BadRecord),
    (Assignment.decode, BadRecord),
    (Question.decode, BadRecord),
    (Progress.decode, BadRecord),
    (Claim.decode, BadRecord),
    (TableProgress.decode, BadRecord),
    (Missed.decode, BadRecord),
    (Manifest.decode, SnapshotBroken),
    (dead_letters.parse, dead_letters.NoAdvisory),
]


@pytest.mark.parametrize(("decode", "error"), RECORDS, ids=lambda each: each.__qualname__)
def test_a_record_is_refused(
    decode: Callable[[bytes], object], error: type[Exception], deep: str
) -> None:
    """By the error of its kind, which says what it is not."""
    with pytest.raises(error):
        decode(deep.encode())


OTHERS: list[Callable[[bytes], object]] = [
    backlog.asked,
    backlog.decode,
    Refusals.decode,
    lambda text: Succession.decode(text.decode()),
]


@pytest.mark.parametrize("decode", OTHERS)
def test_a_message_is_left_out(decode: Callable[[bytes], object], deep: str) -> None:
    """As the message of an older version, or of another program."""
    assert decode(deep.encode()) is None


STORED: list[Callable[[str], object]] = [
    LocalCommit.decode,
    state.FileRow.decode,
    lambda text: offsets.read_offsets(text, ()),
    lambda text: offsets.read_timestamps(text, ()),
    Keys.parse,
]


@pytest.mark.parametrize("decode", STORED)
def test_a_stored_text_is_no_value(decode: Callable[[str], object], deep: str) -> None:
    """Its readers report a damaged state, or a wrong option."""
    with pytest.raises(ValueError, match=r"nested too deeply|JSON"):
        decode(deep)


@pytest.mark.parametrize("field", ["Dead-Subject", "Dead-Headers"])
def test_a_dead_letter_is_refused(field: str, deep: str) -> None:
    """`dlq ls` shows the others."""
    letter = dead_letters.Letter(
        reason="bad-headers", detail="", stream="LOGS_0", created="", sequence=1, time_ns=1,
        subject="logs.p0.h", headers=b"", payload=b"", payload_bytes=0,
    )  # fmt: skip
    fields = dead_letters.encode(letter) | {field: deep}
    raw = "".join(f"{name}: {value}\r\n" for name, value in fields.items())

    with pytest.raises(dead_letters.NoLetter):
        dead_letters.decode(f"NATS/1.0\r\n{raw}\r\n".encode(), b"")


def test_a_log_record_is_printed_as_it_is(deep: str) -> None:
    """`up` goes on to show the others."""
    assert logs.text_of(deep) == deep


def test_a_state_file_is_broken(tmp_path: Path, deep: str) -> None:
    """Its checksum may be right."""
    head = f"kind 1 {zlib.crc32(deep.encode()):08x} {len(deep)}\n"
    (tmp_path / "state").write_text(head + deep)

    with pytest.raises(statefile.StateBroken, match="nested too deeply"):
        statefile.read_state(tmp_path / "state", "kind", 1)


def test_the_record_of_a_running_pipeline_says_what_to_do(tmp_path: Path, deep: str) -> None:
    """As any damaged one."""
    layout = Layout(tmp_path)
    layout.run_file.write_text(deep)

    with pytest.raises(NoPipeline, match="remove it"):
        RunRecord.read(layout)


async def test_a_line_of_the_server_is_no_line_of_the_protocol(deep: str) -> None:
    """The connection is given up, and made again."""
    parser = SinkParser(Session(lambda _: None, lambda _: None))

    with pytest.raises(ProtocolError):
        await parser.parse(f"INFO {deep}\r\n".encode())


def test_an_answer_of_jetstream_says_nothing(deep: str) -> None:
    """Whether the request was carried out is unknown."""
    with pytest.raises(OutcomeUnknown):
        jetstream._checked("STREAM.INFO", deep.encode())


@pytest.mark.parametrize(
    "answer",
    [b'{"error":5}', b'{"a":[' + b"{}," * ANSWER_VALUES_MAX + b"{}]}"],
    ids=["error-of-another-type", "more-than-fits-into-memory"],
)
def test_an_answer_that_jetstream_does_not_give_says_nothing(answer: bytes) -> None:
    """It comes from who stands in a server's place, and ends no more than the request."""
    with pytest.raises(OutcomeUnknown):
        jetstream._checked("STREAM.INFO", answer)


@pytest.mark.parametrize(
    "headers",
    [
        b"NATS/1.0\r\na: b\r\n\r\n",
        b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: x\r\nNats-Time-Stamp: y\r\n\r\n",
    ],
    ids=["none", "other-values"],
)
def test_a_message_without_the_server_s_headers_is_no_stored_one(headers: bytes) -> None:
    """It comes from who stands in a server's place."""
    with pytest.raises(OutcomeUnknown, match="no stored message"):
        jetstream.stored_of(RawMessage(b"a", b"", headers, b""))


def test_headers_of_a_stranger_are_counted_from_the_end() -> None:
    """There are the server's own, and a stored message may have any number before them."""
    own = b"Nats-Subject: a\r\nNats-Sequence: 7\r\nNats-Time-Stamp: 2026-11-25T20:00:00Z\r\n\r\n"
    many = b"".join(b"h%d: x\r\n" % number for number in range(2 * HEADER_LINES_MAX))
    message = RawMessage(b"a", b"", b"NATS/1.0\r\n" + many + own, b"")

    assert jetstream.stored_of(message).sequence == 7
    assert len(jetstream.header_fields(message.headers)) <= HEADER_LINES_MAX


async def test_pages_of_a_server_are_as_good_as_none(page: int) -> None:
    """Its health is what its status says."""
    assert (await embedded._healthz(page)).trouble == "it answers 503"
    assert await embedded._loaded_at(page) is None


async def test_a_page_with_the_interval_of_syncs_is_unknown(page: int) -> None:
    """The reason is shown in the resource's status."""
    nats = SimpleNamespace(servers=["x"], monitoring_url=f"http://127.0.0.1:{page}")
    pipeline = cast("LogPipeline", SimpleNamespace(spec=SimpleNamespace(nats=nats)))

    assert "could not be read" in (await monitoring.sync_of(pipeline)).why_unknown


def test_a_page_with_the_streams_of_a_server_is_left_out(page: int, tmp_path: Path) -> None:
    """The watch of the server's files goes on."""
    assert StoreWatch(tmp_path, f"http://127.0.0.1:{page}", lambda: 0)._held() is None


async def test_an_answer_of_the_api_server_says_nothing_to_a_shipper(page: int) -> None:
    """It asks again later, as after any failure."""
    access = client.Access(url=f"http://127.0.0.1:{page}")

    with pytest.raises(client.Unreachable, match="nested too deeply"):
        await client.list_all(access, "/api/v1/pods", {})


def test_a_file_with_namespaces_is_not_taken(tmp_path: Path, deep: str) -> None:
    """The last content stays valid."""
    path = tmp_path / "namespaces"
    path.write_text('["shop"]')
    found: list[frozenset[str]] = []
    file = pods.NamespacesFile(path, found.append)
    file.look()
    path.write_text(deep)
    file.look()

    assert found == [frozenset({"shop"})]


def test_an_intent_is_left_out(tmp_path: Path, deep: str) -> None:
    """The others are repeated."""
    intents = checkpoint.IntentLog(tmp_path, "boot")
    intents.begin(1)
    intents.close()
    [path] = [path for path in tmp_path.iterdir() if path.name.endswith(".1")]
    path.write_bytes(path.read_bytes() + f'{deep}\n["h","s",["birth"]]\n'.encode())

    assert checkpoint.read_noted(tmp_path, 1, "boot").births == [
        (checkpoint.Key("h", "s"), ["birth"])
    ]


def test_a_kept_succession_is_damaged(tmp_path: Path, deep: str) -> None:
    """As a damaged database is."""
    path = tmp_path / "p0.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE meta(key TEXT, value TEXT)")
        db.execute("INSERT INTO meta VALUES ('succession', ?)", [deep])
    db.close()

    with pytest.raises(ValueError, match="nested too deeply"):
        committed.read_succession(path)


def test_a_snapshot_of_sources_is_refused(deep: str) -> None:
    """Its reader begins without it."""
    packed = zstandard.ZstdCompressor().compress(deep.encode())

    with pytest.raises(sources.BadSnapshot, match="nested too deeply"):
        sources.decode_snapshot(zlib.crc32(deep.encode()).to_bytes(4, "big") + packed)


def test_a_request_for_a_login_is_refused(deep: str) -> None:
    """The callout answers the others."""
    content = base64.urlsafe_b64encode(deep.encode())

    with pytest.raises(BadRequest):
        Request.decode(b"e30." + content + b".sig")


@pytest.mark.parametrize("part", [0, 1])
def test_a_token_is_refused(part: int, deep: str) -> None:
    """Anybody can send one: it is parsed before its signature is looked at."""
    parts = [b'{"alg":"RS256","kid":"k"}', b"{}"]
    parts[part] = deep.encode()
    token = b".".join([*(base64.urlsafe_b64encode(each).rstrip(b"=") for each in parts), b"AA"])

    with pytest.raises(BadToken):
        Keys({}).read(token.decode(), "audience")


async def test_an_answer_of_the_api_server_says_nothing_to_the_operator(deep: str) -> None:
    """The reconciliation is repeated, as after any failure."""
    operator: Any = object.__new__(cluster.Cluster)

    async def answer(*_: object) -> bytes:
        return deep.encode()

    operator._send = answer

    with pytest.raises(cluster.ClusterAway):
        await operator.get(kind("ConfigMap"), "shop", "web")
    assert cluster._error(500, deep).reason == ""


def test_a_key_of_a_managed_field_names_no_item(deep: str) -> None:
    """The other fields of the manager are found."""
    fields: dict[str, Any] = {
        "f:spec": {f"k:{deep}": {}, "k:[]": {}, "f:type": {}, 'k:{"name":"a"}': {}}
    }
    there = {"metadata": {"managedFields": [{"manager": "other", "fieldsV1": fields}]}}

    assert managers(there, ("spec.type", "spec[a]")) == {"spec.type": "other", "spec[a]": "other"}


def test_a_state_of_a_table_is_damaged(tmp_path: Path, deep: str) -> None:
    """Its checksum may be right."""
    packed = zstandard.ZstdCompressor().compress(deep.encode())
    head = f"state {VERSION} {zlib.crc32(packed):08x} {len(packed)}\n".encode()
    storage = LocalStorage(tmp_path)
    storage.put_if_absent(_path(1), head + packed)

    with pytest.raises(Damaged, match="nested too deeply"):
        States(storage).load(1)


def test_a_name_in_the_state_of_a_stream_is_damaged(deep: str) -> None:
    """It is refused with a sentence."""
    with pytest.raises(Damaged, match="nested too deeply"):
        StreamState.of(None, {deep: []}, where="t")


def test_a_version_in_the_log_of_a_delta_table_is_damaged(tmp_path: Path, deep: str) -> None:
    """Whoever wrote it."""
    storage = LocalStorage(tmp_path)
    storage.put_if_absent("lines/_delta_log/00000000000000000000.json", deep.encode())
    log = DeltaLog(storage, "lines", [])

    with pytest.raises(Damaged, match="nested too deeply"):
        list(log._removals("lines/_delta_log/00000000000000000000.json"))
    with pytest.raises(Damaged, match="nested too deeply"):
        log._follow(deep.encode(), None)


def test_acknowledged_losses_are_none(deep: str) -> None:
    """As after any other value that the command did not write."""
    assert losses._decoded(deep.encode()) == losses.Acknowledged()


def test_an_earlier_retry_cannot_be_read(deep: str) -> None:
    """The letter stays, and the message says what to do."""
    with pytest.raises(sending.NotCertain, match=r"remove the key"):
        sending._read_intent(deep.encode(), "letters.1")


def test_a_line_of_json_output_is_none(deep: str) -> None:
    """`report` says that the file has another format."""
    with pytest.raises(sides.NoLine):
        list(sides.lines_of("json", [deep.encode() + b"\n"], is_cri=False))


def test_an_answer_of_the_api_server_is_one_line_of_a_command(deep: str) -> None:
    """Instead of a traceback."""
    with pytest.raises(CliError, match="did not answer with JSON"):
        api._answered(deep.encode(), "https://127.0.0.1")
    answer = SimpleNamespace(content=deep.encode(), reason="Forbidden", status_code=403)
    assert api._message(answer) == "Forbidden"


def test_a_row_from_a_pod_is_left_out(deep: str) -> None:
    """As what else a pod prints there."""
    script = f"print({deep!r}); print(1); print('{{}}'); print('{{\"done\": 1}}')"
    pod = AgentPod("pod", (sys.executable, "-c", script), {})

    assert rows_of(pod, (), {}) == [{}]


def test_what_kubectl_prints_is_one_line_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deep: str
) -> None:
    """Instead of a traceback."""
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{deep}\nEND\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(CliError, match="did not answer with JSON"):
        Kubectl().config()
