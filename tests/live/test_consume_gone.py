"""A stream or a push consumer that is deleted, or made anew, while it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import logpipeline
from components import pulls
from components.consuming import HOSTS, PARTITIONS, Streams, streams_on
from logpipeline.consuming import ordered
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.pull import PullReader
from waiting import eventually

# A net for hangs, wide enough for a machine that runs other tests beside.
READ_S = 60
NEVER_S = 1e9
MESSAGES = 4
PUSH = {"name": "pushed", "type": "push", "deliverSubject": "out.logs", "ackPolicy": "none"}
PULLED = {"name": "pulled"}


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three streams with messages, and consumers that the resource lists."""
    async with streams_on(nats_server, tmp_path / "pipeline", consumers=[PUSH, PULLED]) as made:
        await made.write(MESSAGES)
        yield made


async def read_all(reader: logpipeline.Reader) -> None:
    """Read what was written before."""
    seen = 0
    while seen < PARTITIONS * MESSAGES:
        seen += len((await anext(reader)).messages)
    await reader.settle()


@asynccontextmanager
async def pushed(streams: Streams) -> AsyncIterator[logpipeline.Reader]:
    """Open a reader of the push consumer that has read all there is."""
    async with (
        asyncio.timeout(READ_S),
        logpipeline.open_reader(
            "pushed", pipeline=streams.file, nats=streams.server.url, ack="none"
        ) as reader,
    ):
        await read_all(reader)
        yield reader


@pytest.mark.parametrize("has_new_lines", [True, False])
async def test_a_pushed_stream_that_was_made_anew_ends_its_reader(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, has_new_lines: bool
) -> None:
    """New lines have the sequences of those that were processed, and are not taken for them: what
    is delivered shows it, and without new lines the next look at the server.
    """
    if has_new_lines:
        monkeypatch.setattr(ordered, "LOOK_S", NEVER_S)
    async with pushed(streams) as reader:
        await streams.js.call("STREAM.DELETE.LOGS_1")
        await asyncio.to_thread(streams.run, "apply")
        if has_new_lines:
            await streams.send(HOSTS[1])

        with pytest.raises(logpipeline.StateForeign, match="stream LOGS_1 was made anew"):
            await reader.next()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("CONSUMER.DELETE.LOGS_1.pushed", "pushed of stream LOGS_1 was deleted while it was read"),
        ("STREAM.DELETE.LOGS_1", "there is no stream LOGS_1"),
    ],
)
async def test_a_push_consumer_that_is_deleted_ends_its_reader(
    streams: Streams, what: str, why: str
) -> None:
    """Alone or with its stream. The server says nothing to who listens: it only falls silent."""
    async with pushed(streams) as reader:
        await streams.js.call(what)

        with pytest.raises(logpipeline.ConsumerGone, match=why):
            await reader.next()


async def test_what_a_lost_stream_held_acknowledges_nothing_of_the_one_that_followed_it(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's batch took longer than its pull, so the server did not tell it of the deletion.
    Another client has the new stream's message 1 in hand.
    """
    pulls.end_soon(monkeypatch)
    async with logpipeline.open_reader(
        "pulled", pipeline=streams.file, nats=streams.server.url, partitions="1"
    ) as reader:
        assert (await anext(reader)).last == 1
        await pulls.ended(streams.js, "LOGS_1", "pulled")
        await streams.js.call("STREAM.DELETE.LOGS_1")
        await asyncio.to_thread(streams.run, "apply")
        await streams.send(HOSTS[1])
        stranger = PullReader(streams.js, "LOGS_1", "pulled", pull_bytes=1)
        await stranger.open()
        await eventually(lambda: bool(stranger.held))
        await reader.settle()
        # What it said is with the server before the answer.
        await reader.lag()

        assert (await streams.consumer("pulled", 1))["num_ack_pending"] == 1
        with pytest.raises(logpipeline.StateForeign, match="stream LOGS_1 was made anew"):
            await reader.next()
