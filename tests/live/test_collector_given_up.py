"""What readers of a consumer give up becomes letters, whoever is killed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.letters import AUDIT, HOSTS, PARTITIONS, Lettered, lettered
from logpipeline.dead_letters import Letter, decode
from logpipeline.embedded import EmbeddedServer

SLOW = {**AUDIT, "ackWait": "30s"}


async def letters_of(made: Lettered) -> list[Letter]:
    """All letters, in the order in which they were made."""
    stream = made.pipeline.names.dead_letter_stream
    info = await made.js.stream_info(stream)
    assert info is not None
    found = []
    for sequence in range(1, info["state"]["last_seq"] + 1):
        stored = await made.js.message(stream, sequence)
        if stored is not None:
            found.append(decode(stored.headers, stored.data))
    return found


async def test_what_is_never_acknowledged_becomes_letters_though_the_collector_dies_between(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Over three partitions; it dies between a letter and the end of its advisory."""
    async with lettered(nats_server, tmp_path) as made:
        for partition in range(PARTITIONS):
            await made.send(partition, f"line of {partition}\n".encode())
            await made.read(partition, until=partition + 1)
        made.collector.start(LOGPIPELINE_FAILPOINT="collector.before-advisory-goes:2")
        await made.collector.wait()
        assert await made.stored() == PARTITIONS + 1
        made.collector.start()
        await made.until_letters(PARTITIONS)
        letters = sorted(await letters_of(made), key=lambda letter: letter.stream)

    assert [letter.payload for letter in letters] == [
        f"line of {partition}\n".encode() for partition in range(PARTITIONS)
    ]
    assert [letter.subject for letter in letters] == [
        f"app.p{partition}.{host}" for partition, host in enumerate(HOSTS)
    ]
    assert {(letter.reason, letter.consumer, letter.sequence) for letter in letters} == {
        ("max-deliver", "audit", 1)
    }
    assert all(letter.is_whole and b"Log-Range" in letter.headers for letter in letters)
    assert "delivered 3 times" in letters[0].detail


async def test_what_is_terminated_becomes_a_letter_with_the_reader_s_reason(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """While the collector runs, too."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        made.collector.start()
        for partition in range(PARTITIONS):
            await made.send(partition, b"bad\n")
            await made.read(partition, b"+TERM no such field", until=partition + 1)
        await made.until_letters(PARTITIONS)
        letters = await letters_of(made)

    assert {(letter.reason, letter.payload) for letter in letters} == {("terminated", b"bad\n")}
    assert "no such field" in letters[0].detail


async def test_a_message_that_is_gone_still_makes_a_letter(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It names the message; the bytes are nowhere any more."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        await made.send(0, b"bad\n")
        await made.read(0, b"+TERM")
        await made.js.call(f"STREAM.PURGE.{made.pipeline.names.stream(0)}")
        made.collector.start()
        await made.until_letters(1)
        (letter,) = await letters_of(made)

    assert (letter.is_gone, letter.is_whole) == (True, False)
    assert (letter.stream, letter.sequence, letter.payload) == ("APP_0", 1, b"")


async def test_the_server_s_word_survives_its_kill(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """With no collector running it waits in the stream."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        await made.send(1, b"bad\n")
        await made.read(1, b"+TERM")
        nats_server.kill()
        await nats_server.start()
        await made.js.connection.wait_connected()
        made.collector.start()
        await made.until_letters(1)


@pytest.mark.parametrize("again", ["kept", "gone"])
async def test_the_same_give_up_makes_one_letter_however_late_it_is_read_again(
    nats_server: EmbeddedServer, tmp_path: Path, again: str
) -> None:
    """Also beyond the time in which the server remembers ids, and when the message is gone by
    then.
    """
    async with lettered(nats_server, tmp_path, SLOW) as made:
        stream = made.pipeline.names.dead_letter_stream
        info = await made.js.stream_info(stream)
        assert info is not None
        config = {**info["config"], "duplicate_window": 100_000_000}
        await made.js.call(f"STREAM.UPDATE.{stream}", config)
        await made.send(0, b"bad\n")
        await made.read(0, b"+TERM")
        made.collector.start(LOGPIPELINE_FAILPOINT="collector.before-advisory-goes")
        await made.collector.wait()
        if again == "gone":
            await made.js.call("STREAM.PURGE.APP_0")
        made.collector.start()
        await made.until_letters(1)
