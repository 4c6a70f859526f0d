"""`dlq retry` moves a message: at each moment it is a letter or stored in its partition's stream,
and it is not stored there twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

import warm
from components.letters import AUDIT, HOSTS, PARTITIONS, Lettered, lettered
from logpipeline.dead_letters import Letter, keep
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream, PubAck, header_fields
from logpipeline.nats.scan import Range, Scan
from logpipeline.records import EpochRecord, epoch_key
from logpipeline_cli.dead_letters.entries import DeadStream
from logpipeline_cli.dead_letters.sending import send_again
from waiting import WITHIN_S, eventually

# Of no use to anything that is tested: what the server itself knows again is soon forgotten.
FORGETFUL = {"name": "APP", "duplicateWindow": "100ms"}
SLOW = {**AUDIT, "ackWait": "30s"}
KILLED = -signal.SIGKILL
OURS = {"Log-Version": "9", "Log-Source": "/var/log/app.log", "Log-Range": "0-4"}


async def make_letters(
    made: Lettered,
    count: int,
    headers: dict[str, str] | None = None,
    partition: int = 0,
    **changes: Any,
) -> list[bytes]:
    """Make letters of messages that the partition's stream has let go, with *changes*; return
    their payloads.
    """
    root = made.pipeline.names.dead_letter_subject
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    payloads = [f"message {number}".encode() for number in range(count)]
    for number, payload in enumerate(payloads):
        letter = Letter(
            reason="bad-host",
            detail="",
            stream=made.pipeline.names.stream(partition),
            created="",
            sequence=1000 + number,
            time_ns=1000 + number,
            subject=f"app.p{partition}.{HOSTS[partition]}",
            headers=f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b"",
            payload=payload,
            payload_bytes=len(payload),
        )
        assert await keep(made.js, root, partition, replace(letter, **changes))
    return payloads


async def in_stream(made: Lettered, partition: int = 0) -> Counter[bytes]:
    """How often each payload stands in the partition's stream."""
    return await payloads_of(made, made.pipeline.names.stream(partition))


async def payloads_of(made: Lettered, stream: str) -> Counter[bytes]:
    """How often each payload stands in *stream*."""
    info = await made.js.stream_info(stream)
    assert info is not None
    found: Counter[bytes] = Counter()
    last = info["state"]["last_seq"]
    if last:
        async for batch in Scan(made.js, stream, Range(last=last)).batches():
            found.update(delivered.message.data for delivered in batch)
    return found


async def letters_left(made: Lettered) -> Counter[bytes]:
    """How many letters there are, by payload."""
    return await payloads_of(made, made.pipeline.names.dead_letter_stream)


async def restart(made: Lettered) -> None:
    """Kill the server, and start it again: by then it has forgotten what it knows for a time."""
    made.server.kill()
    await made.server.start()
    await made.js.connection.wait_connected()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("headers", "point"),
    [
        (None, "before-send"),
        (None, "before-letter-goes"),
        (None, "before-intent-goes"),
        (OURS, "before-send"),
        (OURS, "before-letter-goes"),
    ],
)
async def test_a_retry_that_is_killed_loses_nothing_and_is_completed_by_the_next(
    nats_server: EmbeddedServer,
    tmp_path: Path,
    headers: dict[str, str] | None,
    point: str,
    count: int,
) -> None:
    """At each step; a message that nobody could know again is stored once for all that."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        payloads = await make_letters(made, 4, headers)
        made.run("dlq", "retry", "--all", code=KILLED, **{VARIABLE: f"dlq.{point}:{count}"})
        assert set(payloads) == {*await in_stream(made), *await letters_left(made)}
        await restart(made)

        made.run("dlq", "retry", "--all")

        assert not await letters_left(made)
        stored = await in_stream(made)
        assert set(stored) == set(payloads)
        if headers is None:
            assert set(stored.values()) == {1}


async def test_lines_of_the_host_between_the_kill_and_the_next_retry_hide_nothing(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What was sent is found among what others sent behind it."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        await made.publish(0, b"before")
        payloads = await make_letters(made, 2)
        point = {VARIABLE: "dlq.before-letter-goes:2"}
        made.run("dlq", "retry", "--all", code=KILLED, **point)
        for number in range(20):
            await made.publish(0, f"after {number}".encode())
        await restart(made)

        made.run("dlq", "retry", "--all")

        stored = await in_stream(made)
        assert [stored[payload] for payload in payloads] == [1, 1]
        assert stored.total() == 23


async def test_where_nobody_can_tell_whether_it_was_sent_a_person_has_to(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The stream has let go what the interrupted retry may have sent."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        await make_letters(made, 1)
        point = {VARIABLE: "dlq.before-letter-goes"}
        made.run("dlq", "retry", "--all", code=KILLED, **point)
        await made.js.call("STREAM.PURGE.APP_0")
        await restart(made)

        assert "give --again" in made.run("dlq", "retry", "--all", code=1)
        assert (await letters_left(made)).total() == 1
        made.run("dlq", "retry", "--all", "--again")
        assert (await in_stream(made)).total() == 1
        assert not await letters_left(made)


async def test_two_retries_at_once_send_each_message_once(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Neither fails because the other was faster, though the server knows nothing again."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        payloads = await make_letters(made, 60)
        with tempfile.TemporaryFile() as out:
            both = [begin(made, out) for _ in range(2)]
            codes = [process.wait(WITHIN_S) for process in both]
            out.seek(0)
            said = out.read().decode()

        assert codes == [0, 0], said
        assert await in_stream(made) == Counter(payloads)
        assert not await letters_left(made)


class Late(JetStream):
    """Comes to publish when *others* are done, and the server has forgotten what it knew."""

    def __init__(self, made: Lettered, others: Callable[[], Awaitable[object]]) -> None:
        super().__init__(made.js.connection)
        self._made = made
        self._others: Callable[[], Awaitable[object]] | None = others

    async def publish(self, subject: str, *args: Any, **more: Any) -> PubAck:
        """Store a message, late."""
        if self._others is not None and subject.startswith("app."):
            others, self._others = self._others, None
            await others()
            await restart(self._made)
        return await super().publish(subject, *args, **more)


async def test_a_retry_that_comes_late_sends_nothing_after_another(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It had looked, and was about to send, when the other one sent and ended."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        payloads = await make_letters(made, 1)
        dead = DeadStream(made.js, made.pipeline)
        entry = await dead.entry(1)
        late = DeadStream(Late(made, lambda: send_again(dead, entry, again=False)), made.pipeline)

        await send_again(late, entry, again=False)

        assert await in_stream(made) == Counter(payloads)
        assert not await letters_left(made)


async def test_a_retry_that_has_only_read_the_letter_sends_nothing_after_another(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The other one has ended, and left no trace of its intent."""
    async with lettered(nats_server, tmp_path, stream=FORGETFUL) as made:
        payloads = await make_letters(made, 1)
        dead = DeadStream(made.js, made.pipeline)
        entry = await dead.entry(1)

        assert await send_again(dead, entry, again=False)
        assert not await send_again(dead, entry, again=False)
        assert await in_stream(made) == Counter(payloads)


def begin(made: Lettered, out: IO[bytes]) -> warm.Process | subprocess.Popen[bytes]:
    """Start a retry of all letters."""
    words = ["dlq", "retry", "--all", *made.here]
    return warm.start(words, stdout=out, stderr=out, env=dict(os.environ))


async def test_what_the_server_refuses_stays_a_letter(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The stream of the partition is full: nothing moves, and the next retry completes it."""
    async with lettered(nats_server, tmp_path) as made:
        payloads = await make_letters(made, 3)
        info = await made.js.stream_info("APP_0")
        assert info is not None
        full = {**info["config"], "max_msgs": 1, "discard": "new"}
        await made.js.call("STREAM.UPDATE.APP_0", full)

        said = made.run("dlq", "retry", "--all", code=1)
        assert "maximum messages exceeded" in said
        assert "Sent again: 1. Letters that stay: 2." in said
        assert await in_stream(made) + await letters_left(made) == Counter(payloads)

        await made.js.call("STREAM.UPDATE.APP_0", info["config"])
        made.run("dlq", "retry", "--all")
        assert await in_stream(made) == Counter(payloads)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"subject": "$JS.API.STREAM.PURGE.APP_0"}, "no shipper publishes there"),
        ({"subject": "$KV.APP_state.assignment.main"}, "no shipper publishes there"),
        ({"subject": "app.p0.a\r\nPUB b 0\r\n"}, "no shipper publishes there"),
        ({"subject": f"app.p1.{HOSTS[1]}"}, "of another partition"),
        ({"stream": "APP_1"}, "not its partition's"),
        ({"stream": "KV_APP_state"}, "not its partition's"),
    ],
)
async def test_a_letter_of_another_subject_is_not_sent(
    nats_server: EmbeddedServer,
    tmp_path: Path,
    change: dict[str, Any],
    why: str,
) -> None:
    """Readers and collectors write letters, and have fewer rights than the command."""
    async with lettered(nats_server, tmp_path) as made:
        await made.publish(0, b"a line")
        await make_letters(made, 1, OURS, **change)
        before = await made.js.account()

        said = made.run("dlq", "retry", "--all", code=1)

        assert why in said
        assert "Sent again: 0. Letters that stay: 1." in said
        after = await made.js.account()
        assert after["storage"] == before["storage"]
        assert await in_stream(made) == {b"a line": 1}
        made.run("dlq", "show", "1")
        assert "Deleted: 1." in made.run("dlq", "purge", "1", "--yes")


async def test_a_letter_with_the_subject_of_another_is_not_sent(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A reader may have the right to letters of its own name alone."""
    async with lettered(nats_server, tmp_path) as made:
        await make_letters(made, 1)
        stored = await made.js.message(made.pipeline.names.dead_letter_stream, 1)
        assert stored is not None
        fields = header_fields(stored.headers)
        letter = {name: fields[name] for name in fields if name.startswith("Dead-")}
        await made.js.publish(f"{stored.subject}.audit", stored.data, letter)

        said = made.run("dlq", "retry", "2", code=1)

        assert "its own subject names another message" in said
        assert await in_stream(made) == {}


async def test_a_message_is_sent_again_as_its_stream_has_it(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """And not as its letter says, as long as the stream has it."""
    async with lettered(nats_server, tmp_path) as made:
        ack = await made.publish(0, b"true", OURS)
        stored = await made.js.message("APP_0", ack.sequence)
        assert stored is not None
        await make_letters(made, 1, OURS, sequence=ack.sequence, time_ns=stored.time_ns)

        made.run("dlq", "retry", "--all")

        assert await in_stream(made) == {b"true": 2}


async def test_what_waits_is_stored_once_though_a_collector_makes_its_letter_between(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The retry is killed when it has sent; the next one finds a letter in the word's place."""
    async with lettered(nats_server, tmp_path, SLOW, stream=FORGETFUL) as made:
        await made.publish(0, b"a line")
        await made.read(0, b"+TERM")
        words = ("dlq", "retry", "--all", "--again")
        made.run(*words, code=KILLED, **{VARIABLE: "dlq.before-letter-goes"})
        made.collector.start()
        await made.until_letters(1)
        await made.collector.stop()
        await restart(made)

        made.run(*words)

        assert await in_stream(made) == {b"a line": 2}
        assert await made.stored() == 0


async def test_a_letter_that_is_not_there_stops_no_other(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It is told, and the others are sent."""
    async with lettered(nats_server, tmp_path) as made:
        payloads = await make_letters(made, 2)

        said = made.run("dlq", "retry", "1", "7", "2", code=1)

        assert "there is no letter 7" in said
        assert await in_stream(made) == Counter(payloads)


async def test_letters_that_come_back_are_all_kept(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Also more of one host than its share of a moment: the room is that of the former letters."""
    count, size = 90, 250_000
    async with lettered(nats_server, tmp_path) as made:
        for number in range(count):
            await made.publish(PARTITIONS - 1, number.to_bytes(2, "big") + b"x" * size, OURS)
        made.collector.start()
        await made.until_letters(count)
        before = await letters_left(made)

        made.run("dlq", "retry", "--all")

        await made.until_letters(count)
        assert await letters_left(made) == before


async def test_letters_of_a_host_that_has_no_room_left_come_back_as_well(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Each leaves its room to the one that comes."""
    async with lettered(nats_server, tmp_path) as made:
        info = await made.js.stream_info(made.pipeline.names.dead_letter_stream)
        assert info is not None
        small = {**info["config"], "max_bytes": 150_000}
        await made.js.call(f"STREAM.UPDATE.{small['name']}", small)
        for number in range(150):
            await made.publish(0, number.to_bytes(1, "big") + b"x" * 999, OURS)
        made.collector.start()

        async def has_read() -> bool:
            bucket = Bucket(made.js, made.pipeline.names.state_bucket)
            entry = await bucket.get(epoch_key("main", 0))
            return entry is not None and EpochRecord.decode(entry.value).position.sequence == 150

        await eventually(has_read, what="the collector has read all")
        before = await letters_left(made)
        assert 10 < before.total() < 100

        made.run("dlq", "retry", "--all")

        await made.until_letters(before.total())
        assert await letters_left(made) == before
