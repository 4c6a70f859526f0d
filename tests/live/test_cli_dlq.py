"""Dead letters are found, looked at, sent again and deleted by one command, whatever was
restarted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from components.contents import contents_below
from components.letters import AUDIT, HOSTS, PARTITIONS, Lettered, lettered
from logpipeline.dead_letters import Letter, keep
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.pull import PullReader
from waiting import eventually

SLOW = {**AUDIT, "ackWait": "30s"}
OLD = {"Log-Version": "9", "Log-Source": "/var/log/app.log"}


def listed(made: Lettered, *words: str) -> list[dict[str, Any]]:
    """What `dlq ls` says, as JSON."""
    rows = json.loads(made.run("dlq", "ls", "-o", "json", *words))
    assert isinstance(rows, list)
    return rows


async def restart(made: Lettered) -> None:
    """Kill the server, and start it again."""
    made.server.kill()
    await made.server.start()
    await made.js.connection.wait_connected()


async def collected(made: Lettered, partition: int) -> bytes:
    """What the collector wrote of the host of *partition*."""
    return b"".join(each.data for each in contents_below(made.data / "logs" / HOSTS[partition]))


async def until_collected(made: Lettered, partition: int, content: bytes) -> None:
    async def is_collected() -> bool:
        return await collected(made, partition) == content

    await eventually(is_collected, what=f"{content!r} is collected")


async def test_what_cannot_be_decoded_is_listed_shown_sent_again_and_deleted(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Also after the server was killed; what cannot be decoded this time either is a new letter."""
    async with lettered(nats_server, tmp_path) as made:
        made.collector.start()
        for partition in range(PARTITIONS):
            await made.publish(partition, b"\x1b[31mred", OLD)
        await made.until_letters(PARTITIONS)
        await made.collector.stop()
        await restart(made)

        groups = listed(made)
        assert [(g["reason"], g["host"], g["count"]) for g in groups] == [
            ("bad-version", host, 1) for host in HOSTS
        ]
        (one,) = listed(made, "--all", "--host", HOSTS[1])
        shown = made.run("dlq", "show", str(one["number"]))
        assert "\\x1b[31mred" in shown
        assert "\x1b" not in shown
        assert f"app.p1.{HOSTS[1]}" in shown
        assert "version '9'" in shown

        assert "Sent again: 1." in made.run("dlq", "retry", str(one["number"]))
        assert {row["partition"] for row in listed(made, "--all")} == {0, 2}
        made.collector.start()
        await made.until_letters(PARTITIONS)
        assert [row["sequence"] for row in listed(made, "--all", "--host", HOSTS[1])] == [2]

        assert "there is no terminal" in made.run("dlq", "purge", "--host", HOSTS[0], code=1)
        made.run("dlq", "purge", "--host", HOSTS[0], "--yes")
        assert {row["host"] for row in listed(made, "--all")} == set(HOSTS[1:])
        made.run("dlq", "purge", "--all", "--yes")
        assert "There are no dead letters" in made.run("dlq", "ls")


async def test_without_a_collector_what_was_given_up_is_listed_with_its_message(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It waits, can be looked at, and be sent again as any letter."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        for partition in range(PARTITIONS):
            await made.send(partition, b"bad\n")
            await made.read(partition, b"+TERM", until=partition + 1)
        await restart(made)

        rows = listed(made, "--all")
        assert {(r["reason"], r["consumer"], r["waits"], r["bytes"]) for r in rows} == {
            ("terminated", "audit", True, 4)
        }
        assert {row["host"] for row in rows} == set(HOSTS)
        assert "bad\n" in made.run("dlq", "show", str(rows[0]["number"]))
        assert "Sent again: 3." in made.run("dlq", "retry", "--all")

        assert listed(made) == []
        assert await delivered(made, 1) == b"bad\n"


async def delivered(made: Lettered, partition: int) -> bytes:
    """The next message that a reader of the consumer gets, acknowledged."""
    stream = made.pipeline.names.stream(partition)
    reader = PullReader(made.js, stream, "audit", pull_bytes=1_000_000)
    await reader.open()
    (one,) = await eventually(lambda: reader.take(timeout_s=0.1))
    await made.js.connection.publish(one.message.reply.decode(), b"+ACK")
    await reader.close()
    return one.message.data


async def test_a_message_that_is_sent_again_reaches_the_reader_and_no_file_twice(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The collector knows its range; lines behind it are written as ever."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        made.collector.start()
        await made.send(0, b"one\n")
        await made.read(0, b"+TERM")
        await made.until_letters(1)
        await until_collected(made, 0, b"one\n")

        made.run("dlq", "retry", "--consumer", "audit")
        assert await delivered(made, 0) == b"one\n"
        await made.send(0, b"two\n", start=4)
        await until_collected(made, 0, b"one\ntwo\n")


async def test_lines_that_would_be_written_twice_are_sent_again_only_when_meant(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A message of fshipper has no range to be known by."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        await made.publish(0, b"a line")
        await made.read(0, b"+TERM")

        assert "give --again" in made.run("dlq", "retry", "--all", code=1)
        assert len(listed(made)) == 1
        made.run("dlq", "retry", "--all", "--again")
        assert listed(made) == []
        assert await delivered(made, 0) == b"a line"


async def test_a_message_that_is_gone_is_told_and_stays(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Nothing can be sent; the letter goes only by hand."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        await made.send(0, b"bad\n")
        await made.read(0, b"+TERM")
        await made.js.call("STREAM.PURGE.APP_0")

        (row,) = listed(made, "--all")
        assert row["gone"]
        assert "The message is gone" in made.run("dlq", "show", str(row["number"]))
        assert "no longer held the message" in made.run("dlq", "retry", "--all", code=1)
        assert len(listed(made)) == 1


async def test_of_a_large_message_the_rest_comes_from_its_stream(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A letter keeps the beginning; while the stream has the message, all of it is sent again."""
    large = b"x" * 299_999 + b"\n"
    async with lettered(nats_server, tmp_path, SLOW) as made:
        made.collector.start()
        await made.send(0, large)
        await made.read(0, b"+TERM")
        await made.until_letters(1)
        await made.collector.stop()
        (row,) = listed(made, "--all")
        assert row["bytes"] == len(large)

        made.run("dlq", "retry", "--all")
        assert await delivered(made, 0) == large


async def test_pages_of_many_letters_are_the_newest_first(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Each page says where the next one begins; filters choose before pages are cut."""
    async with lettered(nats_server, tmp_path) as made:
        await keep_letters(made, 40, "bad-version", "rejected")
        words = ("--all", "--reason", "rejected", "--limit", "15")
        first = listed(made, *words)
        second = listed(made, *words, "--before", str(first[-1]["number"]))

        assert [row["number"] for row in first + second] == [*range(39, 0, -2)]
        assert "--before 11" in made.run("dlq", "ls", *words)
        assert [group["count"] for group in listed(made)] == [20, 20]


async def test_words_that_say_too_little_or_too_much_do_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Each in one sentence."""
    async with lettered(nats_server, tmp_path) as made:
        assert "say which" in made.run("dlq", "purge", "--yes", code=1)
        assert "numbers cannot be combined" in made.run("dlq", "retry", "3", "--all", code=1)
        assert "no letter 7" in made.run("dlq", "show", "7", code=1)
        assert "--since 'never'" in made.run("dlq", "ls", "--since", "never", code=64)


async def configure(made: Lettered, **changes: Any) -> None:
    """Change the dead-letter stream by hand."""
    info = await made.js.stream_info(made.pipeline.names.dead_letter_stream)
    assert info is not None
    config = {**info["config"], **changes}
    await made.js.call(f"STREAM.UPDATE.{config['name']}", config)


async def keep_letters(made: Lettered, count: int, *reasons: str) -> None:
    """Make letters by hand, with *reasons* in turn; the first letter has the second one."""
    for number in range(1, count + 1):
        letter = Letter(
            reason=reasons[number % len(reasons)],
            detail="",
            stream="APP_0",
            created="",
            sequence=number,
            time_ns=number,
            subject=f"app.p0.{HOSTS[0]}",
        )
        assert await keep(made.js, made.pipeline.names.dead_letter_subject, 0, letter)


async def test_a_stream_of_a_former_version_is_changed_in_place(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It discarded the old. Its letters stay, and a full one refuses from then on."""
    async with lettered(nats_server, tmp_path) as made:
        await configure(made, discard="old", max_msgs=5)
        await keep_letters(made, 5, "rejected")

        assert "discard" in made.run("plan", code=2)
        made.run("apply")

        info = await made.js.stream_info(made.pipeline.names.dead_letter_stream)
        assert info is not None
        assert (info["config"]["discard"], info["config"]["max_msgs"]) == ("new", 500_000)
        assert len(listed(made, "--all")) == 5
        made.run("plan")


async def test_the_status_says_how_full_the_stream_is_and_what_it_drops(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """In text, as JSON, and as problems for scripts."""
    async with lettered(nats_server, tmp_path, SLOW) as made:
        await configure(made, max_bytes=4096, max_msgs_per_subject=2)
        await keep_letters(made, 2, "rejected")
        for number in range(4):
            await made.send(0, b"bad\n", start=4 * number)
        await made.read(0, b"+TERM", until=4)
        room = json.loads(made.run("status", "-o", "json"))["deadLetterRoom"]
        text = made.run("status")
        problems = made.run("status", "--check", code=1)

        assert (room["messages"], room["bytesMax"]) == (4, 4096)
        assert room["givenUpFull"] == [{"stream": "APP_0", "consumer": "audit"}]
        assert 0 < room["bytes"] < 4096
        assert "4 dead letters, " in text
        assert "of 4.0 KiB" in text
        assert "consumer audit gives up more messages of APP_0 than are kept" in problems
        assert "4 dead letters: see" in problems
