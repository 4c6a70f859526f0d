"""A reader that is asked to end does so, though its server is away; what it could not note comes
again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import logpipeline
import logpipeline.consuming.reader as reader_module
from components.consuming import HOSTS, Streams
from logpipeline.consuming import claims
from waiting import eventually

# A net for hangs, wide enough for a machine that runs other tests beside.
END_S = 60
# Instead of the seconds that a server which is away is waited for.
SHORT_S = 0.5
# Waits for the word to go on, so that the server can go away meanwhile.
WORK = 'cat; touch "$DIR/begun"; until [ -e "$DIR/go" ]; do sleep 0.05; done; touch "$DIR/done"'


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams, of which one has a message."""
    await streams.send(HOSTS[0])
    return streams


@pytest.mark.long
async def test_a_signal_ends_a_reader_that_cannot_note_its_batch(
    streams: Streams, tmp_path: Path
) -> None:
    """Its command is finished, and the reader waits for the server meanwhile."""
    words = ("own", "--state", "kv", "--partitions", "0")
    reading = streams.read(*words, "--exec", WORK, DIR=str(tmp_path))
    await eventually((tmp_path / "begun").exists)
    streams.server.suspend()
    try:
        (tmp_path / "go").touch()
        await eventually((tmp_path / "done").exists)
        reading.process.terminate()
        log = await reading.ends(0, within_s=END_S)
    finally:
        streams.server.resume()
    again = streams.read(*words, "--until-caught-up")
    await again.ends(0)

    assert "message 1 of stream LOGS_0 could not be noted in time; it may come again" in log
    # The server may have got it, and just not answered.
    assert again.lines in ([], streams.written)


async def test_a_context_ends_though_its_batch_cannot_be_noted(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's as well, which waits for the end of its reader's thread."""
    for module, limits in (
        (reader_module, ("SETTLE_S", "LEAVE_S")),
        (claims, ("RELEASE_DEADLINE_S",)),
    ):
        for limit in limits:
            monkeypatch.setattr(module, limit, SHORT_S)
    options: Any = {"pipeline": streams.file, "nats": streams.server.url}
    options |= {"state": "kv", "partitions": "0"}

    def read() -> None:
        with logpipeline.open_blocking_reader("script", **options) as reader:
            next(reader).processed()
            streams.server.suspend()

    try:
        async with asyncio.timeout(END_S):
            async with logpipeline.open_reader("own", **options) as reader:
                (await anext(reader)).processed()
                streams.server.suspend()
            streams.server.resume()
            await asyncio.to_thread(read)
    finally:
        streams.server.resume()
