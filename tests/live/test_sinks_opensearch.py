"""`logpipeline sink opensearch` with a real OpenSearch: each line is a document, once."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

from components.consuming import Streams, in_order
from components.destination_contract import Implementation, check
from components.real_server import copy_through_kills
from components.search_server import OpenSearch, SearchForwarding, open_search
from components.sink_batches import batch_of, message, plain_batch
from faults.settings import is_soak
from logpipeline.consuming.message import Batch
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.sinks import opensearch
from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain

SEED = 11
ROUNDS = 20 if is_soak() else 1
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800 if is_soak() else 900)]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch]:
    """A server that starts with the first test that asks for it; each test has its own index."""
    with open_search(tmp_path_factory.mktemp("search") / "server") as running:
        yield running


def arguments(url: str, index: str) -> argparse.Namespace:
    """Return what a user would give."""
    words = ["sink", "opensearch", "copy", "--url", url, "--index", index]
    return build_parser().parse_args(words)


async def write(search: OpenSearch, index: str, batch: Batch) -> None:
    """Write as a process that has just started."""
    destination = opensearch.destination_of(arguments(search.url, index))
    try:
        await destination.write(batch)
    finally:
        await destination.close()


async def test_the_real_server_keeps_the_contract(search: OpenSearch) -> None:
    """All bytes, once, in order; in parts, and whatever becomes of requests and answers."""
    made = SearchForwarding(real=search.url, search=search, index="contract")
    with made.serving() as server:
        args = arguments(server.url, "contract")
        await check(Implementation(made, lambda: opensearch.destination_of(args), is_once=True))


async def test_lines_are_copied_once_though_sink_and_server_are_killed(
    search: OpenSearch, streams: Streams
) -> None:
    """The server is killed in the midst of a copy, and the sink after a write."""
    words = ("sink", "opensearch", "flow", "--url", search.url, "--index", "flow", "--batch", "5")
    await copy_through_kills(search, streams, words, rounds=ROUNDS, seed=SEED)
    found = [text.decode() for text in search.texts("flow")]
    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_an_alias_and_a_data_stream_take_lines(search: OpenSearch) -> None:
    """A data stream creates only, and wants a time."""
    search.ask("PUT", "/first-000001", {"aliases": {"first": {"is_write_index": True}}})
    template = {"index_patterns": ["second*"], "data_stream": {}}
    search.ask("PUT", "/_index_template/second", template)
    batch = batch_of([message(1, b"one\ntwo\n"), message(2, b"three\n")])
    for index in ("first", "second"):
        for _ in range(2):
            await write(search, index, batch)
        assert search.texts(index) == [b"one", b"two", b"three"]


async def test_a_line_that_the_mapping_refuses_is_named(search: OpenSearch) -> None:
    """It is refused as often as it comes; the others of its batch are there once."""
    mapping = {"mappings": {"properties": {"message": {"type": "long"}}}}
    search.ask("PUT", "/numbers", mapping)
    batch = plain_batch(b"1", b"many", b"3")
    for _ in range(2):
        with pytest.raises(Refused, match=r"answered 400 to a line: .*mapper_parsing_exception"):
            await write(search, "numbers", batch)
    assert search.texts("numbers") == [b"1", b"3"]


async def test_a_message_that_is_sent_again_is_there_once(search: OpenSearch) -> None:
    """Some of its lines were taken before the mapping took the others."""
    properties: dict[str, Any] = {"message": {"type": "long"}}
    search.ask("PUT", "/mended", {"mappings": {"properties": properties}})
    data = b"1\nmany\n3\n"
    with pytest.raises(Refused, match="mapper_parsing_exception"):
        await write(search, "mended", batch_of([message(41, data, start=0)]))
    properties["message"]["ignore_malformed"] = True
    search.ask("PUT", "/mended/_mapping", {"properties": properties})
    await write(search, "mended", batch_of([message(97, data, start=0)]))
    assert sorted(search.texts("mended")) == [b"1", b"3", b"many"]


async def test_an_index_that_takes_no_lines_blames_no_message(search: OpenSearch) -> None:
    """Closed, read-only or without a field, it is the index's; on a full disk it is for later."""
    batch = plain_batch(b"one")
    search.ask("PUT", "/shut")
    search.ask("POST", "/shut/_close")
    search.ask("PUT", "/still", {"settings": {"index.blocks.write": True}})
    search.ask("PUT", "/strict", {"mappings": {"dynamic": "strict"}})
    search.ask("PUT", "/full", {"settings": {"index.blocks.read_only_allow_delete": True}})
    for index in ("shut", "still", "strict"):
        with pytest.raises(Misdirected, match="check the index and the rights"):
            await write(search, index, batch)
    with pytest.raises(TryAgain, match="answered 429 to a line"):
        await write(search, "full", batch)
    search.ask("PUT", "/full/_settings", {"index.blocks.read_only_allow_delete": None})
    await write(search, "full", batch)
    assert search.texts("full") == [b"one"]


async def test_an_index_that_may_not_be_made_by_itself_is_named(search: OpenSearch) -> None:
    """A name that was mistyped is no message's fault."""
    settings = {"persistent": {"action.auto_create_index": "false"}}
    search.ask("PUT", "/_cluster/settings", settings)
    try:
        with pytest.raises(Misdirected, match="index_not_found_exception"):
            await write(search, "mistyped", plain_batch(b"one"))
    finally:
        settings["persistent"]["action.auto_create_index"] = None  # type: ignore[assignment]
        search.ask("PUT", "/_cluster/settings", settings)
