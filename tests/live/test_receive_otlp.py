"""What `logpipeline receive otlp` promises: what it answered with 200 is in the files."""

from __future__ import annotations

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from components.receiving import Receiver, address
from faults.small_disk import small_disk
from waiting import eventually

DISK_BYTES = 4 * 1024 * 1024
PLACES = ("receive.written", "receive.logged", "receive.applied", "")
KILLS = 20


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
            await asyncio.to_thread(post, port, b"", **{"Content-Type": "application/x-protobuf"}),
        ]
    finally:
        receiver.kill()

    assert [status for status, _, _ in answers] == [200, 200, 200, 400, 415]
    assert json.loads(answers[2][1])["partialSuccess"]["rejectedLogRecords"] == "1"
    assert texts_in(receiver) == ["a", "b\nc", "d", "a", "b\nc"]
    assert [path.name for path in receiver.received.rglob("*.log")] == ["shop.log"]


@pytest.mark.timeout(400)
async def test_what_was_answered_is_there_after_many_kills(tmp_path: Path, port: int) -> None:
    """A client repeats what was not answered; what was answered at once is there once."""
    receiver = Receiver(tmp_path, "otlp", "--listen", f"127.0.0.1:{port}")
    tries: Counter[str] = Counter()
    try:
        for number in range(KILLS):
            place = PLACES[number % len(PLACES)]
            count = 1 + number // len(PLACES) % 3
            receiver.start(**({"LOGPIPELINE_FAILPOINT": f"{place}:{count}"} if place else {}))
            for each in range(count + 1):
                text = f"record {number}.{each}"
                await eventually(partial(_sent, receiver, port, text, tries))
            receiver.kill()
    finally:
        receiver.kill()

    found = Counter(texts_in(receiver))
    assert set(found) == set(tries)
    assert all(found[text] == 1 for text, count in tries.items() if count == 1)
    assert all(found[text] <= count for text, count in tries.items())


async def _sent(receiver: Receiver, port: int, text: str, tries: Counter[str]) -> bool:
    """Send *text* once more to a receiver that listens; return whether it was accepted."""
    if not receiver.is_running:
        receiver.start()
    if not await receiver.is_ready():
        return False
    tries[text] += 1
    status, _, _ = await asyncio.to_thread(post, port, request_of([text]))
    return status == 200


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
