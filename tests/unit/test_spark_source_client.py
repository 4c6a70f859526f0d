"""What a query waits for, what ends it at once, and whom it asks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from logpipeline.nats.jetstream import ApiError, time_ns_of
from logpipeline.nats.session import RawMessage
from logpipeline.streamstate import StreamState
from logpipeline_spark.errors import Refused
from logpipeline_spark.source import client as module
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import parse

# Far longer than a test may take.
PATIENCE_S = "600"
OPTIONS = parse(
    {"servers": "nats://127.0.0.1:4222", "stream": "LOGS", "patienceSeconds": PATIENCE_S}
)
# What nats-server answers for a stream whose replicas elect a leader.
NO_LEADER = ApiError("STREAM.INFO.LOGS_0", 503, 10008, "JetStream system temporarily unavailable")
NO_STREAM = ApiError("STREAM.INFO.LOGS_0", 404, 10059, "stream not found")


class Answers:
    """Answers requests: with these errors, one after the other, and then well."""

    def __init__(self, *errors: ApiError) -> None:
        self._errors = list(errors)

    async def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "well"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait between two attempts, and a wait is logged from the first on."""
    monkeypatch.setattr(module, "RETRY_WAIT_S", 0)
    monkeypatch.setattr(module, "LOG_AFTER_S", -1)


def test_the_election_of_a_leader_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """While a replica restarts, say; the server's own words say what is waited for."""
    client = Client(OPTIONS)
    with caplog.at_level(logging.WARNING):
        assert client.ask(Answers(NO_LEADER, NO_LEADER)) == "well"
    client.close()

    (said,) = [record.getMessage() for record in caplog.records]
    assert "JetStream system temporarily unavailable" in said


def test_trouble_of_a_server_that_stays_is_told_as_such() -> None:
    """After the patience, and without advice about rights."""
    client = Client(replace(OPTIONS, patience_s=-1))
    with pytest.raises(Refused, match="temporarily unavailable") as caught:
        client.ask(Answers(NO_LEADER))
    client.close()

    assert "rights" not in str(caught.value)


def test_a_wrong_request_is_not_repeated() -> None:
    """It would be refused again."""
    client = Client(OPTIONS)
    with pytest.raises(Refused, match="rights of this user"):
        client.ask(Answers(NO_STREAM))
    client.close()


TIME = "2026-11-26T10:00:00.000000007Z"
LATER = "2026-11-26T10:00:05Z"
STATE = StreamState("2026-11-26T09:00:00Z", first=1, last=1005, last_time_ns=time_ns_of(LATER))


class Replicas:
    """Three servers of a stream with 1,005 messages. The one that answers direct gets has none of
    them yet; the leader has all but those from *end* on. *asked* are the requests for a message.
    """

    def __init__(self, end: int = 1006) -> None:
        self.asked: list[str] = []
        self._end = end

    async def request(self, subject: str, payload: bytes, **_: Any) -> RawMessage:
        kind, query = subject.removeprefix("$JS.API."), json.loads(payload)
        self.asked.append(kind)
        if kind == "DIRECT.GET.LOGS_0":
            return RawMessage(b"", b"", b"NATS/1.0 404 Message Not Found\r\n\r\n", b"")
        assert kind == "STREAM.MSG.GET.LOGS_0"
        assert query["next_by_subj"] == ">"
        sequence = query.get("seq", 1000)
        answer: dict[str, Any] = {"message": {"subject": "logs", "seq": sequence, "time": TIME}}
        if sequence >= self._end:
            answer = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
        return RawMessage(b"", b"", b"", json.dumps(answer).encode())


@contextmanager
def asking(monkeypatch: pytest.MonkeyPatch, replicas: Replicas) -> Iterator[Client]:
    """Return a client of *replicas*."""
    client = Client(OPTIONS)
    monkeypatch.setattr(client.connection, "request", replicas.request)
    yield client
    client.close()


def test_a_replica_without_a_message_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lag behind; the leader knows. A batch would end at a message of another time."""
    replicas = Replicas()
    with asking(monkeypatch, replicas) as client:
        assert client.time_at("LOGS_0", STATE, 1000) == time_ns_of(TIME)
        for query in ({"seq": 1000}, {"start_time": TIME}):
            found = client.first_from("LOGS_0", query)
            assert found is not None
            assert (found.sequence, found.time_ns) == (1000, time_ns_of(TIME))
    assert replicas.asked == ["DIRECT.GET.LOGS_0", "STREAM.MSG.GET.LOGS_0"] * 3


def test_what_the_leader_lacks_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted messages have no time."""
    with asking(monkeypatch, Replicas(end=900)) as client:
        assert client.first_from("LOGS_0", {"seq": 1000}) is None
        assert client.time_at("LOGS_0", STATE, 1000) is None
