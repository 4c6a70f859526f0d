"""Each destination of `logpipeline sink` keeps the contract, with a server that speaks its
protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.bare.certificates import Identity, make
from components.destination_contract import Implementation, check
from components.sink_batches import CREATED, batch_of, message, plain_batch
from components.sink_servers import (
    ClickHouse,
    Loki,
    OtlpReceiver,
    Receiver,
    Request,
    Search,
)
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks import clickhouse, http, line_requests, loki, opensearch, otlp
from logpipeline_cli.sinks.destination import (
    Misdirected,
    Refused,
    TryAgain,
    created_of,
    line_names,
    name_of,
)
from logpipeline_cli.sinks.http_client import (
    ANSWER_BYTES_MAX,
    RETRY_AFTER_S_MAX,
    Answer,
    retry_after_s,
)


def arguments(kind: str, *words: str) -> argparse.Namespace:
    """Return the arguments of `logpipeline sink`."""
    return build_parser().parse_args(["sink", kind, "copy", *words])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that looks at `Idempotency-Key`."""
    server = Receiver()
    with server.serving():
        yield server


@pytest.mark.parametrize("output", ["ndjson", "json"])
async def test_http_keeps_the_contract(receiver: Receiver, output: str) -> None:
    """With a receiver that knows its keys, each batch is stored once."""
    args = arguments("http", "--url", receiver.url, "-o", output)

    await check(Implementation(receiver, lambda: http.destination_of(args), is_once=True))


async def test_loki_keeps_the_contract() -> None:
    """It drops what it holds already; lines that only look the same are kept."""
    with Loki().serving() as server:
        args = arguments("loki", "--url", server.url)
        await check(Implementation(server, lambda: loki.destination_of(args), is_once=True))


async def test_otlp_keeps_the_contract() -> None:
    """At least once."""
    with OtlpReceiver().serving() as server:
        args = arguments("otlp", "--url", server.url)
        await check(Implementation(server, lambda: otlp.destination_of(args), is_once=False))


async def test_opensearch_keeps_the_contract() -> None:
    """Each document has an id of its own."""
    with Search().serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        await check(Implementation(server, lambda: opensearch.destination_of(args), is_once=True))


async def test_clickhouse_keeps_the_contract() -> None:
    """Each insert has a token of its own."""
    with ClickHouse().serving() as server:
        args = arguments("clickhouse", "--url", server.url, "--table", "shop.logs")
        made = Implementation(server, lambda: clickhouse.destination_of(args), is_once=True, cuts=2)
        await check(made)


async def test_http_without_its_key_is_found(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite sees a name that is not the same the second time."""
    count = iter(range(1000))
    monkeypatch.setattr(line_requests, "name_of", lambda batch: f"{batch.id}-{next(count)}")
    args = arguments("http", "--url", receiver.url)

    with pytest.raises(AssertionError):
        await check(Implementation(receiver, lambda: http.destination_of(args), is_once=True))


async def test_http_sends_its_headers_and_its_login(receiver: Receiver, tmp_path: Path) -> None:
    """From the command line what is public, from files what is secret."""
    (tmp_path / "token").write_text("secret-word\n")
    (tmp_path / "headers").write_text("X-Api-Key: other\n")
    args = arguments(
        "http", "--url", f"{receiver.url}/in?tenant=1", "--header", "X-Tenant: shop",
        "--header-file", str(tmp_path / "headers"), "--token-file", str(tmp_path / "token"),
    )  # fmt: skip
    batch = plain_batch(b"one", first=7)
    destination = http.destination_of(args)
    await destination.write(batch)
    await destination.close()

    (request,) = receiver.requests
    assert (request.path, request.query) == ("/in", {"tenant": "1"})
    assert request.headers["authorization"] == "Bearer secret-word"
    assert (request.headers["x-tenant"], request.headers["x-api-key"]) == ("shop", "other")
    assert request.headers["idempotency-key"] == f"LOGS_7-7-7-{created_of(batch)}" == name_of(batch)
    assert json.loads(request.data)["message"] == "one"
    assert CREATED.startswith("2026")


async def test_a_server_that_never_answers_is_given_up(receiver: Receiver) -> None:
    """After --timeout, and the next request has a connection of its own."""
    receiver.faults.append("hang")
    args = arguments("http", "--url", receiver.url, "--timeout", "300ms")
    destination = http.destination_of(args)
    with pytest.raises(TryAgain, match="did not answer"):
        await destination.write(plain_batch(b"one"))
    receiver.ended.set()
    await destination.write(plain_batch(b"one"))
    await destination.close()
    assert receiver.texts() == [b"one"]


async def test_a_certificate_is_verified(tmp_path: Path) -> None:
    """By the authority that --ca names; without it, nothing is sent."""
    await asyncio.to_thread(make, tmp_path, [Identity("server", "x", serves=("IP:127.0.0.1",))])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    server = Receiver()
    with server.serving(context):
        words = ("--url", server.url)
        stranger = http.destination_of(arguments("http", *words))
        with pytest.raises(Misdirected, match="has no valid certificate"):
            await stranger.write(plain_batch(b"one"))
        await stranger.close()
        assert server.requests == []
        trusting = http.destination_of(arguments("http", *words, "--ca", str(tmp_path / "ca.crt")))
        await trusting.write(plain_batch(b"one"))
        await trusting.close()
    assert server.texts() == [b"one"]


@pytest.mark.parametrize(
    ("text", "least_s", "most_s"),
    [
        ("", 0, 0),
        ("12", 12, 12),
        ("100000", RETRY_AFTER_S_MAX, RETRY_AFTER_S_MAX),
        ("soon", 0, 0),
        ("Mon, 01 Jan 99999999999999 00:00:00 GMT", 0, 0),
        ("-5", 0, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", RETRY_AFTER_S_MAX, RETRY_AFTER_S_MAX),
    ],
)
def test_a_server_says_when_to_come_again(text: str, least_s: float, most_s: float) -> None:
    """In seconds or as a date; not for ever, and nonsense is nothing."""
    assert least_s <= retry_after_s(Answer(429, {"retry-after": text}, b"")) <= most_s


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--url", "ftp://x"), "give an address"),
        (("--url", "https://me:secret@x"), "a login does not stand in an address"),
        (("--url", "http://x", "--header", "Authorization: Basic eA=="), "on the command line"),
        (("--url", "http://x", "--header", "secret"), "give a header such as"),
        (("--url", "http://x", "--token-file", "/nowhere"), "cannot be read"),
        (("--url", "http://x", "--timeout", "soon"), "--timeout"),
        (("--url", "https://x", "--ca", "/nowhere"), "not a file of certificates"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], said: str) -> None:
    """And no secret is repeated."""
    with pytest.raises(UsageError, match=said) as found:
        http.destination_of(arguments("http", *words))
    assert "secret" not in str(found.value)


def test_lines_that_loki_would_take_for_one_are_told_apart() -> None:
    """A file's lines have the time of their message; the same line ten times is ten entries, which
    are the same when the batch comes again.
    """
    batch = batch_of([message(1, b"retrying\n" * 10)])
    found = loki.entries(batch, {"job": "shop"})

    assert len({(entry.labels, entry.time_ns, entry.text) for entry in found}) == 10
    assert found == loki.entries(batch_of([message(1, b"retrying\n" * 10)]), {"job": "shop"})
    assert found[0].labels == (("host", "node-a"), ("job", "shop"))
    name = line_names(batch.messages[0], created_of(batch))[0]
    assert found[0].metadata == {"line_id": name, "source": "/var/log/app.log"}


def test_an_otlp_record_has_an_id_that_stays() -> None:
    """And says where its line is from, in OpenTelemetry's words."""
    batch = plain_batch(b"one", b"two", first=5)
    first, second = (json.loads(record.data) for record in otlp.records(batch))

    name = line_names(batch.messages[0], created_of(batch))[0]
    uid = {"key": "log.record.uid", "value": {"stringValue": name}}
    assert first["attributes"][0] == uid
    assert first["attributes"][0] != second["attributes"][0]
    assert first["timeUnixNano"] == str(batch.messages[0].time_ns)


async def test_records_that_an_otlp_receiver_rejects_are_no_success() -> None:
    """It answers 200 and says so in the text."""
    with OtlpReceiver(rejected=2).serving() as server:
        destination = otlp.destination_of(arguments("otlp", "--url", server.url))
        with pytest.raises(Refused, match="rejected 2 records: too old"):
            await destination.write(plain_batch(b"one", b"two"))
        await destination.close()


@pytest.mark.parametrize(
    ("statuses", "error"),
    [
        ([400, 429], TryAgain),
        ([400, 201, 400], Refused),
        ([400, 201, 201], TryAgain),
        ([503], TryAgain),
        ([404, 400, 404], Misdirected),
    ],
)
async def test_each_document_has_an_outcome(statuses: list[int], error: type[Exception]) -> None:
    """A bulk request succeeds although its documents do not; what can be written later is, before
    the rest is refused. One of these comes once more, alone.
    """
    with Search(statuses=deque(statuses)).serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        with pytest.raises(error):
            await destination.write(plain_batch(b"one", b"two"))
        await destination.close()


async def test_the_lines_that_were_taken_are_known_when_a_dead_letter_is_sent_again() -> None:
    """It is stored anew, under another sequence."""
    server = Search(statuses=deque([201, 400, 201, 400]))
    with server.serving():
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        data = b"one\ntwo\nthree\n"
        with pytest.raises(Refused):
            await destination.write(batch_of([message(41, data, start=0)]))
        server.statuses.clear()
        await destination.write(batch_of([message(97, data, start=0)]))
        await destination.close()

    assert sorted(server.texts()) == [b"one", b"three", b"two"]


@dataclass
class Wordy(Search):
    """Says with each error the text that it is about, as far as it is asked to."""

    reason_bytes: int = 2**20

    def take(self, request: Request) -> tuple[int, bytes]:
        """Create the documents, and explain."""
        status, data = super().take(request)
        answer = json.loads(data)
        for item in answer["items"]:
            if "error" in item["create"]:
                error = item["create"]["error"] = {"type": "document_parsing_exception"}
                if request.query["filter_path"].endswith("items.create.error"):
                    error["reason"] = "x" * self.reason_bytes
        return status, json.dumps(answer).encode()


@pytest.mark.parametrize("reason_bytes", [ANSWER_BYTES_MAX // 4, ANSWER_BYTES_MAX + 1])
async def test_a_refusal_that_repeats_its_line_is_understood(reason_bytes: int) -> None:
    """The reasons of all together, or the one alone, are longer than what is read of an answer."""
    with Wordy(statuses=deque([400] * 6), reason_bytes=reason_bytes).serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        with pytest.raises(Refused, match=r"400 to a line: .*document_parsing_exception.*x"):
            await destination.write(plain_batch(*[b"one"] * 5))
        await destination.close()


async def test_the_answer_for_many_short_lines_can_be_read() -> None:
    """Each has its place in the answer, however short it is."""
    with Search().serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        await destination.write(batch_of([message(1, b"\n" * 20_000)]))
        await destination.close()

    counts = [request.data.count(b"\n") // 2 for request in server.requests]
    assert sum(counts) == 20_000
    assert max(counts) * opensearch.ITEM_BYTES_MAX <= ANSWER_BYTES_MAX


@pytest.mark.parametrize(
    ("code", "said", "error"),
    [
        (117, "Cannot parse", Refused),
        (117, "Unknown field found while parsing JSONEachRow format: pod", Misdirected),
        (60, "", Misdirected),
        (241, "", TryAgain),
        (10**5000, "", TryAgain),
    ],
    ids=["row", "column", "table", "memory", "nonsense"],
)
async def test_clickhouse_says_by_its_code_what_went_wrong(
    code: int, said: str, error: type[Exception]
) -> None:
    """All with the status 500: a bad row, a field without a column, a table that is not there, too
    little memory, and what is no code.
    """
    sys.set_int_max_str_digits(10_000)
    with ClickHouse(code=code, said=said).serving() as server:
        args = arguments("clickhouse", "--url", server.url, "--table", "shop.logs")
        destination = clickhouse.destination_of(args)
        with pytest.raises(error, match=r"Code: \d+"):
            await destination.write(plain_batch(b"one"))
        await destination.close()


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("ReplicatedMergeTree ORDER BY time", ""),
        ("MergeTree ORDER BY time SETTINGS non_replicated_deduplication_window = 1000", ""),
        ("MergeTree ORDER BY time SETTINGS index_granularity = 8192", "may be there twice"),
    ],
)
async def test_a_table_that_forgets_tokens_is_named(
    engine: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, with what to do."""
    with ClickHouse(engine=engine).serving() as server:
        args = arguments("clickhouse", "--url", server.url, "--table", "shop.logs")
        destination = clickhouse.destination_of(args)
        await destination.open()
        await destination.close()
    assert said in caplog.text
    assert bool(caplog.text) == bool(said)


async def test_a_table_that_is_not_there_is_named() -> None:
    """Before the first line is read."""
    with ClickHouse(engine="").serving() as server:
        args = arguments("clickhouse", "--url", server.url, "--table", "shop.logs")
        destination = clickhouse.destination_of(args)
        with pytest.raises(Misdirected, match="no table shop"):
            await destination.open()
        await destination.close()


@dataclass
class Forgetful(Search):
    """Creates all documents, and answers for some of them only."""

    answered: int = 0

    def take(self, request: Request) -> tuple[int, bytes]:
        """Create the documents."""
        status, data = super().take(request)
        answer = json.loads(data)
        return status, json.dumps(answer | {"items": answer["items"][: self.answered]}).encode()


@pytest.mark.parametrize("answered", [0, 1])
async def test_documents_that_are_not_answered_for_are_sent_again(answered: int) -> None:
    """As by something between, which cuts answers."""
    with Forgetful(answered=answered).serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        with pytest.raises(TryAgain, match=f"2 documents were sent, and {answered} were answered"):
            await destination.write(plain_batch(b"one", b"two"))
        await destination.close()


async def test_an_error_that_is_no_text_is_told_as_it_is() -> None:
    """A server that is another one than it seems."""

    class Odd(Search):
        def take(self, request: Request) -> tuple[int, bytes]:
            item = {"create": {"status": 400, "error": {"type": ["a"]}}}
            return 200, json.dumps({"errors": True, "items": [item]}).encode()

    with Odd().serving() as server:
        args = arguments("opensearch", "--url", server.url, "--index", "logs")
        destination = opensearch.destination_of(args)
        with pytest.raises(Refused, match="400 to a line"):
            await destination.write(plain_batch(b"one"))
        await destination.close()
