"""A publisher may begin its headers with a status line, as the server does in its own answers.
Stored, such a message is a message like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from components import raw_nats
from components.collecting import HOSTS, PARTITIONS, Pipeline, collecting, config_for, pipeline
from components.raw_nats import STATUS_LINES
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.scan import DirectReader, Range, Scan
from logpipeline.subjects import Subjects
from waiting import eventually

STREAM = "LOGS_0"
SUBJECT = Subjects("logs", PARTITIONS).of_host(HOSTS[0])
MESSAGES = [
    (SUBJECT.encode(), line, b"line %02d" % number) for number, line in enumerate(STATUS_LINES)
]
WRITTEN = [payload for _, _, payload in MESSAGES]


@pytest.fixture
async def made(nats_server: EmbeddedServer) -> AsyncIterator[Pipeline]:
    async with pipeline(nats_server) as made:
        yield made


async def is_stored(made: Pipeline) -> bool:
    info = await made.js.stream_info(STREAM)
    return info is not None and info["state"]["last_seq"] == len(MESSAGES)


async def test_a_collector_and_its_successor_take_them(
    nats_server: EmbeddedServer, made: Pipeline, tmp_path: Path
) -> None:
    """Each one is the last that the former owner committed, which the next one looks up."""
    folder = tmp_path / "logs"
    for number, message in enumerate(MESSAGES, 1):
        await raw_nats.publish(nats_server.url, message)
        await made.assign(f"collector-{number}")
        async with collecting(config_for(nats_server, tmp_path, f"collector-{number}")):
            await made.until_committed(number)

    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(b"".join(path.read_bytes() for path in files).splitlines()) == WRITTEN
    assert await made.dead_letters() == []


async def test_each_way_to_read_a_stream_gives_them(
    nats_server: EmbeddedServer, made: Pipeline
) -> None:
    """One at a time, several at once, and by a consumer."""
    await raw_nats.publish(nats_server.url, *MESSAGES)
    await eventually(lambda: is_stored(made), what="all are stored")
    js = made.js
    reader = DirectReader(js, STREAM, SUBJECT)
    await reader.open()

    alone = [await js.message(STREAM, number) for number in range(1, len(MESSAGES) + 1)]
    newest = [await js.newest_message(STREAM, SUBJECT), await js.last_message(STREAM, SUBJECT)]
    together = await reader.take(1)
    scanned = [
        delivered.message.data
        async for part in Scan(js, STREAM, Range(last=len(MESSAGES))).batches()
        for delivered in part
    ]

    nothing = await reader.take(len(MESSAGES) + 1)
    await reader.close()
    assert [found and found.data for found in alone] == WRITTEN
    assert [found and found.data for found in newest] == [WRITTEN[-1]] * 2
    assert [found.data for found in together] == WRITTEN
    assert [found.sequence for found in together] == list(range(1, len(MESSAGES) + 1))
    assert scanned == WRITTEN
    assert await js.message(STREAM, len(MESSAGES) + 1) is None
    assert nothing == []
