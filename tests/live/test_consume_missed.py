"""Messages that the server deleted before a reader got to them are counted, logged, and shown by
`status`; what was read before, or was never to be read, is not among them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from components.consuming import HOSTS, Streams, streams_on
from logpipeline.embedded import EmbeddedServer
from logpipeline_operator.jetstream import Permission, reconcile

HOST = HOSTS[0]
ONE = ("--partitions", "0")
UNTIL_THE_END = (*ONE, "--until-caught-up")
MISSED = "missed messages 5 to 8 of stream LOGS_0: they were deleted before they were read"


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three streams, the first of them with four messages."""
    filtered: list[dict[str, Any]] = [{"name": "filtered", "filterHost": HOST}]
    async with streams_on(nats_server, tmp_path / "pipeline", consumers=filtered) as made:
        await send(made, 4)
        yield made


async def send(streams: Streams, messages: int) -> None:
    for _ in range(messages):
        await streams.send(HOST)


async def read_all(streams: Streams, name: str, *words: str) -> tuple[list[str], str]:
    """Return what a reader prints until it has caught up, and what it says."""
    reading = streams.read(name, *words, *UNTIL_THE_END)
    log = await reading.ends(0)
    return reading.lines, log


async def purge(streams: Streams, below: int) -> None:
    await streams.js.call("STREAM.PURGE.LOGS_0", {"seq": below})


async def keep_newest(streams: Streams, messages: int) -> None:
    """Have the server delete all but the newest, as it does with what is too old."""
    info = await streams.js.stream_info("LOGS_0")
    assert info is not None
    config = {**info["config"], "max_msgs": messages, "discard": "old"}
    await streams.js.call("STREAM.UPDATE.LOGS_0", config)


@pytest.mark.parametrize(
    "words", [(), ("--group",), ("--state", "kv"), ("--state", "file"), ("--group", "--in-order")]
)
async def test_what_the_server_deleted_unread_is_named(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """With its range and times, and by `status`; each of them once."""
    await read_all(streams, "own", *words)
    await send(streams, 10)
    await keep_newest(streams, 6)

    lines, log = await read_all(streams, "own", *words)

    assert lines == streams.written[8:]
    assert f"{MISSED}; they were stored " in log
    assert "6 processed" in log
    assert "4 missed" in log
    assert "own" in streams.run("status")
    check = streams.run("status", "--check", code=1)
    assert "reader own missed 4 messages, the last of them 5 to 8 of LOGS_0" in check
    seen = await reconcile(streams.js, streams.pipeline, Permission(may_write=False), list)
    assert seen.readers_missed == 4
    _, log = await read_all(streams, "own", *words)
    assert "missed" not in log


async def test_it_is_named_where_nothing_follows_it(streams: Streams) -> None:
    """No message comes that would show the gap."""
    await read_all(streams, "own", "--state", "kv")
    await send(streams, 4)
    await purge(streams, 9)

    lines, log = await read_all(streams, "own", "--state", "kv")

    assert (lines, MISSED in log) == ([], True)


async def test_what_is_missing_of_a_batch_that_was_begun_is_named(streams: Streams) -> None:
    """It is not known whether the reader that died over it was done."""
    words = ("--state", "kv", "--batch", "100")
    await read_all(streams, "own", *words)
    await send(streams, 10)
    await streams.read("own", *words, *ONE, point="consume.begun").ends(-9)
    await purge(streams, 9)

    lines, log = await read_all(streams, "own", *words)

    assert (lines, MISSED in log) == (streams.written[8:], True)


@pytest.mark.parametrize("words", [("--ack", "each"), ("--group",)])
async def test_what_is_deleted_while_a_reader_is_held_up_is_named(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """Its work waits for a target that is away, as a sink does."""
    gate = streams.folder / "open"
    script = f"cat; until test -e {gate}; do sleep 0.05; done"
    reading = streams.read("own", *words, *ONE, "--exec", script)
    await reading.until(1)
    await send(streams, 20)
    await keep_newest(streams, 3)
    gate.touch()
    await reading.until(5)
    await reading.stop()

    assert reading.lines[-3:] == streams.written[-3:]
    missed = len(streams.written) - len(reading.lines)
    assert f"{missed} missed" in reading.log


async def test_a_new_reader_has_missed_nothing(streams: Streams) -> None:
    """What was deleted before it began is not for it."""
    await purge(streams, 3)

    lines, log = await read_all(streams, "own", "--state", "kv")

    assert (lines, "missed" in log) == (streams.written[2:], False)


async def test_what_a_person_takes_out_is_not_missed(streams: Streams) -> None:
    """A message is deleted from the midst of its stream by a person, who means it."""
    await read_all(streams, "own", "--state", "kv")
    await send(streams, 4)
    await streams.js.message_delete("LOGS_0", 6)

    lines, log = await read_all(streams, "own", "--state", "kv")

    assert (lines, "missed" in log) == ([*streams.written[4:5], *streams.written[6:]], False)


async def test_messages_of_others_are_not_missed(streams: Streams) -> None:
    """Of what was deleted no one knows whether a filter had let it pass."""
    await read_all(streams, "filtered", "--state", "kv")
    for _ in range(4):
        await streams.js.publish("logs.p0.other", b"no line of this host")
    await purge(streams, 9)
    await send(streams, 1)

    lines, log = await read_all(streams, "filtered", "--state", "kv")

    assert (lines, "missed" in log) == (streams.written[4:], False)


async def test_a_reset_forgets_what_was_missed(streams: Streams) -> None:
    """With the position, since which it was."""
    await read_all(streams, "own", "--state", "kv")
    await send(streams, 4)
    await purge(streams, 7)
    await read_all(streams, "own", "--state", "kv")
    assert "reader own missed 2 messages" in streams.run("status", "--check", code=1)

    await read_all(streams, "own", "--state", "kv", "--reset", "--yes")

    assert "reader own missed" not in streams.run("status", "--check", code=1)
