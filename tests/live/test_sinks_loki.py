"""`logpipeline sink loki` with a real Loki, which takes ten minutes to build: `make soak` does."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.consuming import Streams, in_order
from components.destination_contract import Implementation, check
from components.loki_server import Loki, LokiForwarding, loki_server
from components.real_server import copy_through_kills
from components.sink_batches import batch_of, message, plain_batch
from logpipeline.consuming.message import Batch
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.sinks import loki
from logpipeline_cli.sinks.destination import Refused, TryAgain

SEED = 13
ROUNDS = 10
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Loki]:
    """A server that takes whatever comes."""
    with loki_server(tmp_path / "loki") as running:
        yield running


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Loki]:
    """A server with the limits that it has by itself, but for a lower one of bytes a second."""
    with loki_server(tmp_path / "loki", limits="  ingestion_rate_mb: 1") as running:
        yield running


def arguments(url: str) -> argparse.Namespace:
    """Return what a user would give."""
    return build_parser().parse_args(["sink", "loki", "copy", "--url", url])


async def write(server: Loki, batch: Batch) -> None:
    """Write as a process that has just started."""
    destination = loki.destination_of(arguments(server.url))
    try:
        await destination.write(batch)
    finally:
        await destination.close()


async def test_the_real_server_keeps_the_contract(server: Loki) -> None:
    """All bytes, in order; in parts, and whatever becomes of requests and answers. Some lines that
    are longer than its blocks are there twice.
    """
    made = LokiForwarding(real=server.url, loki=server)
    with made.serving() as before:
        args = arguments(before.url)
        await check(Implementation(made, lambda: loki.destination_of(args), is_once=False))


async def test_lines_are_copied_once_though_sink_and_server_are_killed(
    server: Loki, streams: Streams
) -> None:
    """The sink after a write, and the server before and after what it wrote again."""
    words = ("sink", "loki", "flow", "--url", server.url, "--batch", "5")
    await copy_through_kills(server, streams, words, rounds=ROUNDS, seed=SEED)
    found = [text.decode() for text in server.texts()]
    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_equal_lines_of_one_time_are_all_there(server: Loki) -> None:
    """However often their batch comes."""
    batch = batch_of([message(1, b"retrying\n" * 1000)])
    for _ in range(2):
        await write(server, batch)
    assert server.texts() == [b"retrying"] * 1000


async def test_what_its_limits_refuse_is_named(strict: Loki) -> None:
    """A line that is too long is refused as often as it comes; the others are there once."""
    batch = plain_batch(b"one", b"x" * 300_000, b"two")
    for _ in range(2):
        with pytest.raises(Refused, match="max entry size"):
            await write(strict, batch)
    assert strict.texts() == [b"one", b"two"]


async def test_more_than_its_rate_is_for_later(strict: Loki) -> None:
    """It is no message's fault."""
    lines = [bytes([65 + number]) * 200_000 for number in range(20)]
    batch = batch_of([m for n in range(10) for m in plain_batch(*lines, first=20 * n).messages])
    with pytest.raises(TryAgain, match="rate limit"):
        await write(strict, batch)
