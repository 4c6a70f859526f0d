"""What `logpipeline receive otlp` promises: what it answered with 200 is in the files."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)

from components.receiving import Receiver, address
from faults.small_disk import small_disk
from waiting import eventually

DISK_BYTES = 4 * 1024 * 1024
PLACES = ("receive.written", "receive.logged", "receive.applied", "")
KILLS = 20
SENDERS = 4
# The receiver waits ten seconds for what is under way.
STOP_S = 60
# How long the exporter repeats what is not answered: less, and it is this test that does.
EXPORT_S = 1
SPAN = SpanContext(0x5B8EFFF798038103D269B633813FC60C, 0xEEE19B7EC3C1B174, False, TraceFlags(1))


def request_of(texts: list[str], service: str = "shop") -> bytes:
    """Return an export request with a record for each of *texts*."""
    attributes = [{"key": "service.name", "value": {"stringValue": service}}]
    records = [{"timeUnixNano": "1", "body": {"stringValue": text}} for text in texts]
    scopes = [{"scope": {"name": "lib"}, "logRecords": records}]
    logs = [{"resource": {"attributes": attributes}, "scopeLogs": scopes}]
    return json.dumps({"resourceLogs": logs}).encode()


def post(port: int, body: bytes, **headers: str) -> tuple[int, str, str]:
    """Return status, content and `Retry-After` of the answer; 0 where there is none."""
    given = {"Content-Type": "application/json", **headers}
    url = f"http://127.0.0.1:{port}/v1/logs"
    try:
        asked = urllib.request.Request(url, body, given, method="POST")
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("Retry-After", "")
    except OSError:
        return 0, "", ""


def texts_in(receiver: Receiver) -> list[str]:
    """Return the bodies of all records in the files."""
    return [json.loads(line)["record"]["body"]["stringValue"] for line in receiver.lines()]


@pytest.fixture
def port() -> int:
    """A free port."""
    return address()[1]


async def test_records_are_lines_of_their_service(tmp_path: Path, port: int) -> None:
    """Packed or not; what is no record is told, and what is no request is refused."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    receiver.start()
    try:
        await receiver.ready()
        body = request_of(["a", "b\nc"])
        bad = body.replace(b'"logRecords": [', b'"logRecords": [7, ')
        answers = [
            await asyncio.to_thread(post, port, body),
            await asyncio.to_thread(
                post, port, gzip.compress(request_of(["d"])), **{"Content-Encoding": "gzip"}
            ),
            await asyncio.to_thread(post, port, bad),
            await asyncio.to_thread(post, port, b"[]"),
            await asyncio.to_thread(post, port, body, **{"Content-Type": "text/plain"}),
        ]
    finally:
        receiver.kill()

    assert [status for status, _, _ in answers] == [200, 200, 200, 400, 415]
    assert json.loads(answers[2][1])["partialSuccess"]["rejectedLogRecords"] == "1"
    assert texts_in(receiver) == ["a", "b\nc", "d", "a", "b\nc"]
    assert [path.name for path in receiver.received.rglob("*.log")] == ["shop.log"]


class Client(Protocol):
    """Sends a record with a text."""

    def send(self, text: str) -> bool:
        """Return whether it was accepted."""

    def tries(self, text: str) -> int:
        """Return in how many requests *text* was sent."""


class JsonClient:
    """One that sends JSON, each record once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tries: Counter[str] = Counter()

    def send(self, text: str) -> bool:
        """Return whether it was accepted."""
        self._tries[text] += 1
        return post(self._port, request_of([text]))[0] == 200

    def tries(self, text: str) -> int:
        """Return in how many requests *text* was sent."""
        return self._tries[text]


class _Counting(requests.Session):
    """Counts the requests by their bodies: the exporter repeats some by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.bodies: list[bytes] = []

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send *request*."""
        body = request.body
        assert isinstance(body, bytes)
        self.bodies.append(body)
        return super().send(request, **options)


class SdkClient:
    """OpenTelemetry's own exporter, which sends protobuf."""

    def __init__(self, port: int, compression: Compression = Compression.NoCompression) -> None:
        self._session = _Counting()
        self.exporter = OTLPLogExporter(
            f"http://127.0.0.1:{port}/v1/logs",
            session=self._session,
            compression=compression,
            timeout=EXPORT_S,
        )
        self._resource = Resource({"service.name": "shop"})

    def send(self, text: str) -> bool:
        """Return whether it was accepted."""
        record = ReadableLogRecord(
            LogRecord(timestamp=1, body=text), self._resource, InstrumentationScope("lib")
        )
        return self.exporter.export([record]) is LogRecordExportResult.SUCCESS

    def tries(self, text: str) -> int:
        """Return in how many requests *text* was sent."""
        return sum(text.encode() in body for body in self._session.bodies)


async def test_a_program_with_the_sdk_is_understood(tmp_path: Path, port: int) -> None:
    """Its records are lines, with the ids of its trace as JSON writes them."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    receiver.start()
    provider = LoggerProvider(Resource({"service.name": "shop"}), shutdown_on_exit=False)
    try:
        await receiver.ready()
        for compression in Compression:
            provider.add_log_record_processor(
                BatchLogRecordProcessor(SdkClient(port, compression).exporter)
            )
        provider.get_logger("lib", "1").emit(
            LogRecord(
                timestamp=1795255200000000001,
                context=set_span_in_context(NonRecordingSpan(SPAN)),
                severity_number=SeverityNumber.WARN,
                body={"text": "ä", "bytes": b"\xff"},
                attributes={"size": 2**40},
            )
        )
        assert await asyncio.to_thread(provider.force_flush)
    finally:
        await asyncio.to_thread(provider.shutdown)
        receiver.kill()

    lines = [json.loads(line) for line in receiver.lines("shop")]
    assert len(lines) == len(Compression)
    for line in lines:
        del line["record"]["observedTimeUnixNano"]
        text = {"key": "text", "value": {"stringValue": "ä"}}
        data = {"key": "bytes", "value": {"bytesValue": "/w=="}}
        assert line == {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scope": {"name": "lib", "version": "1"},
            "record": {
                "timeUnixNano": "1795255200000000001",
                "severityNumber": 13,
                "body": {"kvlistValue": {"values": [text, data]}},
                "attributes": [{"key": "size", "value": {"intValue": "1099511627776"}}],
                "traceId": f"{SPAN.trace_id:032x}",
                "spanId": f"{SPAN.span_id:016x}",
                "flags": 1,
            },
        }


@pytest.mark.long
@pytest.mark.parametrize("kind", [JsonClient, SdkClient])
async def test_what_was_answered_is_there_after_many_kills(
    kind: Callable[[int], Client], tmp_path: Path, port: int
) -> None:
    """A client repeats what was not answered; what was answered at once is there once."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    client = kind(port)
    texts: list[str] = []
    try:
        for number in range(KILLS):
            place = PLACES[number % len(PLACES)]
            count = 1 + number // len(PLACES) % 3
            receiver.start(**({"LOGPIPELINE_FAILPOINT": f"{place}:{count}"} if place else {}))
            for each in range(count + 1):
                texts.append(f"record {number}.{each}.")
                await eventually(partial(_sent, receiver, client, texts[-1]))
            receiver.kill()
    finally:
        receiver.kill()

    found = Counter(texts_in(receiver))
    assert set(found) == set(texts)
    assert all(found[text] <= client.tries(text) for text in texts)
    # Each place of a kill was reached: some were sent again.
    assert sum(client.tries(text) > 1 for text in texts) >= KILLS // 2


async def _sent(receiver: Receiver, client: Client, text: str) -> bool:
    """Send *text* once more to a receiver that listens; return whether it was accepted."""
    if not receiver.is_running:
        receiver.start()
    if not await receiver.is_ready():
        return False
    return await asyncio.to_thread(client.send, text)


@pytest.mark.long
async def test_a_stop_answers_all_that_came(tmp_path: Path, port: int) -> None:
    """With 200 what is in the files; a request of which only half came is to be repeated."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    receiver.start()
    answers: dict[str, int] = {}

    def post_until_refused(sender: int) -> None:
        for number in itertools.count():
            text = f"{sender}.{number}"
            answers[text] = post(port, request_of([text]))[0]
            if answers[text] != 200:
                return

    try:
        await receiver.ready()
        with socket.create_connection(("127.0.0.1", port)) as half:
            head = "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            half.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
            async with asyncio.TaskGroup() as tasks:
                for sender in range(SENDERS):
                    tasks.create_task(asyncio.to_thread(post_until_refused, sender))
                await eventually(lambda: len(receiver.lines()) > SENDERS, what="lines are there")
                code = await receiver.stop(STOP_S)
            answer = await asyncio.to_thread(half.recv, 4096)
    finally:
        receiver.kill()

    accepted = {text for text, status in answers.items() if status == 200}
    assert code == 0
    assert Counter(accepted) <= Counter(texts_in(receiver))
    # 0: nobody listens any more.
    assert set(answers.values()) <= {200, 503, 0}
    assert answer.startswith(b"HTTP/1.1 503 ")


async def test_a_full_disk_is_answered_and_loses_nothing(tmp_path: Path, port: int) -> None:
    """With 503 and a time to wait; once there is room, all goes on."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    with small_disk(receiver.received, size_bytes=DISK_BYTES) as disk:
        try:
            receiver.start()
            await receiver.ready()
            assert (await asyncio.to_thread(post, port, request_of(["before"])))[0] == 200
            disk.fill()
            # What is left of the last page takes some lines yet.
            accepted, refused = ["before"], None
            for number in range(200):
                text = f"{number} " + "x" * 500
                status, _, after = await asyncio.to_thread(post, port, request_of([text]))
                if status != 200:
                    refused = (status, after)
                    break
                accepted.append(text)
            assert refused == (503, "5")
            assert not await receiver.is_ready()
            receiver.kill()
            disk.free()
            receiver.start()
            await receiver.ready()
            assert (await asyncio.to_thread(post, port, request_of(["after"])))[0] == 200
            assert texts_in(receiver) == [*accepted, "after"]
        finally:
            receiver.kill()
