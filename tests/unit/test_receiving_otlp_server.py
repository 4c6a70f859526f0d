"""What a client of OpenTelemetry's protocol is answered, and what is kept of its request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving import otlp_server
from logpipeline_cli.receiving.committer import WAITING_BYTES_MAX, Committer
from logpipeline_cli.receiving.file_names import NameTemplate
from logpipeline_cli.receiving.otlp import JSON, BadRequest, Logs
from logpipeline_cli.receiving.otlp_server import VARIABLES, Application
from logpipeline_cli.receiving.spool import Spool

BODY = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'
LINE = b'{"record":{}}\n'


@dataclass
class Exchange:
    """A request whose parts are given one by one, and its answer."""

    method: str = "POST"
    path: str = "/v1/logs"
    kind: str = "application/json"
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parts: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.has_asked_for_more = asyncio.Event()

    def give(self, body: bytes, *, more: bool = False) -> None:
        """Send a part of the body."""
        self._parts.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def hang_up(self) -> None:
        """End the connection."""
        self._parts.put_nowait({"type": "http.disconnect"})

    async def run(self, application: Application) -> int:
        """Return the status of the answer, or 0 if there was none."""
        headers = [(b"Content-Type", self.kind.encode())]
        scope = {"method": self.method, "path": self.path, "headers": headers}
        await application(scope, self._receive, self._send)
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the answer."""
        return dict(self.sent[0]["headers"])

    @property
    def content(self) -> Any:
        """The answer's JSON."""
        return json.loads(self.sent[1]["body"])

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._parts.empty():
            self.has_asked_for_more.set()
        return await self._parts.get()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)


@asynccontextmanager
async def serving(
    folder: Path, waiting_bytes_max: int = WAITING_BYTES_MAX
) -> AsyncIterator[Application]:
    """Yield an application that writes to *folder*."""
    metrics = Metrics("receiver")
    with Spool(folder) as spool:
        committer = Committer(spool, metrics, waits=False, waiting_bytes_max=waiting_bytes_max)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(committer.run(stop))
            yield Application(committer, NameTemplate("{service}.log", VARIABLES), metrics)
            stop.set()


async def answered(application: Application, exchange: Exchange, body: bytes) -> int:
    """Return the status of the answer to *body*."""
    exchange.give(body)
    return await exchange.run(application)


async def test_what_is_accepted_is_in_the_file(tmp_path: Path) -> None:
    """By the time of the answer."""
    async with serving(tmp_path) as application:
        exchange = Exchange()
        exchange.give(BODY[:9], more=True)

        assert await answered(application, exchange, BODY[9:]) == 200
        assert exchange.content == {}
        assert (tmp_path / "-.log").read_bytes() == LINE


async def test_a_service_whose_name_is_no_utf8_has_a_file(tmp_path: Path) -> None:
    """JSON can hold half a character; the records of others are written, too."""
    request = (
        b'{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":'
        b'{"stringValue":"a\\ud800"}}]},"scopeLogs":[{"logRecords":[{}]}]},' + BODY[17:]
    )
    async with serving(tmp_path) as application:
        assert await answered(application, Exchange(), request) == 200
    assert (tmp_path / "-.log").read_bytes() == LINE
    (other,) = tmp_path.glob("a*.log")
    assert json.loads(other.read_text())["record"] == {}


async def test_an_answer_has_the_encoding_of_its_request(tmp_path: Path) -> None:
    """Protobuf, also with a parameter behind it; refused or not."""
    async with serving(tmp_path) as application:
        request = ExportLogsServiceRequest()
        request.resource_logs.add().scope_logs.add().log_records.add()
        taken, refused = (Exchange(kind="application/x-protobuf; a=b") for _ in range(2))

        assert await answered(application, taken, request.SerializeToString()) == 200
        assert await answered(application, refused, b"x") == 400
        for exchange in (taken, refused):
            assert exchange.headers[b"content-type"] == b"application/x-protobuf"
        response = ExportLogsServiceResponse.FromString(taken.sent[1]["body"])
        assert not response.HasField("partial_success")
        message = Status.FromString(refused.sent[1]["body"]).message
        assert message.startswith("the body is no ExportLogsServiceRequest")
        assert (tmp_path / "-.log").read_bytes() == LINE


@pytest.mark.parametrize(
    ("exchange", "status"),
    [
        (Exchange(path="/v1/traces"), 404),
        (Exchange(method="GET"), 405),
        (Exchange(kind="text/plain"), 415),
    ],
)
async def test_another_request_is_refused(exchange: Exchange, status: int, tmp_path: Path) -> None:
    """With a message that says what to send."""
    async with serving(tmp_path) as application:
        assert await answered(application, exchange, BODY) == status
        assert exchange.content["message"]


async def test_a_request_that_ends_early_is_not_accepted(tmp_path: Path) -> None:
    """Even where what came of it is a request: the client will repeat it."""
    async with serving(tmp_path) as application:
        exchange = Exchange()
        exchange.give(BODY, more=True)
        exchange.hang_up()

        assert await exchange.run(application) == 0
    assert not list(tmp_path.glob("*.log"))


async def test_a_body_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte more is refused, and no more of it is read."""
    monkeypatch.setattr(otlp_server, "BODY_BYTES_MAX", len(BODY))
    async with serving(tmp_path) as application:
        assert await answered(application, Exchange(), BODY) == 200
        exchange = Exchange()
        exchange.give(BODY + b" ", more=True)

        assert await exchange.run(application) == 413


async def test_a_body_that_does_not_come_is_to_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients that stand still would hold all the room there is."""
    monkeypatch.setattr(otlp_server, "BODY_S_MAX", 0)
    async with serving(tmp_path) as application:
        exchange = Exchange()

        assert await exchange.run(application) == 503
        assert exchange.headers[b"retry-after"] == b"1"


async def test_all_bodies_together_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request beyond it is to be repeated, and is accepted once another one is gone."""
    monkeypatch.setattr(otlp_server, "BODIES_BYTES_MAX", 10)
    async with serving(tmp_path) as application, asyncio.TaskGroup() as tasks:
        # A part that is above the limit is held all the same; the next one is not asked for.
        large = Exchange()
        large.give(BODY[:10], more=True)
        running = tasks.create_task(large.run(application))
        await large.has_asked_for_more.wait()
        other = Exchange()
        other.give(b" ", more=True)

        assert await answered(application, other, BODY) == 429
        assert other.headers[b"retry-after"] == b"1"
        large.hang_up()
        assert await running == 0
        assert await answered(application, Exchange(), BODY) == 200


async def test_a_request_that_is_parsed_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes seconds."""
    had_turn = threading.Event()

    def slow(body: bytes) -> Logs:
        if not had_turn.wait(20):
            raise BadRequest("nothing else ran meanwhile")
        return JSON.parse(body)

    monkeypatch.setitem(otlp_server.ENCODINGS, "application/json", JSON._replace(parse=slow))
    async with serving(tmp_path) as application, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(answered(application, Exchange(), BODY))
        await asyncio.sleep(0)
        had_turn.set()

        assert await running == 200


async def test_one_request_is_parsed_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes many times the memory of its body meanwhile."""
    lock = threading.Lock()

    def alone(body: bytes) -> Logs:
        if not lock.acquire(blocking=False):
            raise BadRequest("another one is parsed")
        try:
            # The lock is free for other threads to try.
            time.sleep(0)
            return JSON.parse(body)
        finally:
            lock.release()

    monkeypatch.setitem(otlp_server.ENCODINGS, "application/json", JSON._replace(parse=alone))
    async with serving(tmp_path) as application, asyncio.TaskGroup() as tasks:
        all_of_them = [
            tasks.create_task(answered(application, Exchange(), BODY)) for _ in range(20)
        ]
    assert {each.result() for each in all_of_them} == {200}


async def test_what_waits_for_the_disk_has_a_limit(tmp_path: Path) -> None:
    """Nothing is read beyond it."""
    async with serving(tmp_path, waiting_bytes_max=0) as application:
        exchange = Exchange()

        assert await exchange.run(application) == 429
        assert not exchange.has_asked_for_more.is_set()


async def test_room_that_others_took_meanwhile_is_no_room(tmp_path: Path) -> None:
    """Many bodies may be read while there is still room for each of them."""
    async with serving(tmp_path, waiting_bytes_max=1) as application:
        exchange = Exchange()
        exchange.give(BODY[:9], more=True)
        running = asyncio.create_task(exchange.run(application))
        await exchange.has_asked_for_more.wait()
        other = application._committer.give({"other.log": b"x\n"}, 1)
        exchange.give(BODY[9:])

        assert await running == 429
        assert exchange.headers[b"retry-after"] == b"1"
        await other
        assert await answered(application, Exchange(), BODY) == 200


async def test_a_receiver_that_ends_asks_for_a_repetition(tmp_path: Path) -> None:
    """With 500, which an exception becomes, a client drops its records."""
    async with serving(tmp_path) as application:
        exchange = Exchange()
        exchange.give(BODY[:5], more=True)
        running = asyncio.create_task(exchange.run(application))
        await exchange.has_asked_for_more.wait()
        running.cancel()

        assert await running == 503
        assert exchange.content == {"message": "the receiver ends"}
