"""Each destination of `logpipeline sink` keeps the contract, with a server that speaks its
protocol.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.destination_contract import Implementation, check
from components.sink_batches import CREATED, plain_batch
from components.sink_servers import Receiver
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks import http
from logpipeline_cli.sinks.destination import created_of, name_of


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


async def test_http_without_its_key_is_found(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite sees a name that is not the same the second time."""
    count = iter(range(1000))
    monkeypatch.setattr(http, "name_of", lambda batch: f"{batch.id}-{next(count)}")
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
