"""Which requests a batch becomes, and which of them are not sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.sink_batches import batch_of, message, plain_batch
from logpipeline_cli.sinks import clickhouse, destination, http, loki, opensearch, otlp
from logpipeline_cli.sinks.destination import Destination, Refused, TryAgain, name_of
from logpipeline_cli.sinks.http_client import Answer
from logpipeline_cli.sinks.line_requests import LineRequests


@pytest.mark.parametrize("error", [Refused("it is bad"), TryAgain("no answer")])
async def test_what_was_taken_of_a_batch_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Neither with the same batch, which goes on where it ended, nor when the reader hands out each
    message alone, whatever the batch ended with.
    """
    monkeypatch.setattr(destination, "REQUEST_BYTES_MAX", 1)
    sent: list[str] = []

    async def send(name: str, lines: list[bytes]) -> None:
        sent.append(name)
        if len(sent) in (2, 3):
            raise error

    requests, texts = LineRequests(send), (b"one", b"two", b"three")
    batch = plain_batch(*texts)
    for _ in range(2):
        with pytest.raises(type(error)):
            await requests.write(batch)
    for number, text in enumerate(texts):
        await requests.write(plain_batch(text, first=1 + number))

    alone = [name_of(plain_batch(text, first=2 + at)) for at, text in enumerate(texts[1:])]
    assert sent == [name_of(batch), f"{name_of(batch)}.1", f"{name_of(batch)}.1", *alone]


async def test_a_stream_that_was_made_anew_has_other_messages() -> None:
    """It counts from 1 again."""
    sent: list[str] = []

    async def send(name: str, lines: list[bytes]) -> None:
        sent.append(name)

    requests = LineRequests(send)
    batches = [plain_batch(b"one"), plain_batch(b"one", created="2026-11-25T11:00:00.000000001Z")]
    for batch in batches:
        await requests.write(batch)

    assert sent == [name_of(batch) for batch in batches]


class Taking:
    """A client of a system that takes every request."""

    base = where = ""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def post(
        self, data: bytes, headers: dict[str, str], *, path: str = "", query: str = ""
    ) -> Answer:
        """Keep *data*, and answer as to that many documents."""
        self.bodies.append(data)
        items = [{"create": {"status": 201}}] * (data.count(b"\n") // 2)
        return Answer(200, {}, json.dumps({"items": items}).encode())

    def check(self, answer: Answer) -> None:
        """It is taken."""


MAKE: dict[str, Any] = {
    "clickhouse": lambda client: clickhouse.ClickHouseDestination(client, "shop", "logs"),
    "http": lambda client: http.HttpDestination(client, "json"),
    "loki": lambda client: loki.LokiDestination(client, {"job": "shop"}),
    "opensearch": lambda client: opensearch.BulkDestination(client, "logs"),
    "otlp": otlp.OtlpDestination,
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize(
    "text",
    ["я".encode() * 400, "日".encode() * 300, b"\xff" * 700, b"\x01" * 300, b"a", b'"' * 500],
)
async def test_a_request_is_as_long_as_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, kind: str, text: bytes
) -> None:
    """A receiver counts bytes: of a text that is not English each character has several, and JSON
    writes some bytes in six.
    """
    limit = 20_000
    monkeypatch.setattr(destination, "REQUEST_BYTES_MAX", limit)
    client = Taking()
    made: Destination = MAKE[kind](client)
    hosts = [f"node-{number % 3}" for number in range(60)]
    data = (text + b"\n") * 4
    await made.write(batch_of([message(1 + at, data, host=host) for at, host in enumerate(hosts)]))

    assert len(client.bodies) > 1
    assert max(map(len, client.bodies)) <= limit
