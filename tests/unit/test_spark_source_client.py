"""What a query waits for, and what ends it at once."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from logpipeline.nats.jetstream import ApiError
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
