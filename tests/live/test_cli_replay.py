"""What the streams still hold is written once more, exactly as the collector wrote it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import zstandard

import warm
from components.letters import HOSTS, PARTITIONS, Lettered, lettered
from components.pipeline_up import COMMAND
from logpipeline.embedded import EmbeddedServer
from logpipeline.listing import files_below
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import rfc3339_of
from logpipeline.records import EpochRecord, epoch_key
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers, message_id, source_key
from waiting import WITHIN_S, eventually

NO_CONSUMER = {"name": "copy", "ackPolicy": "none"}
TIME = "2026-01-31T12:00:00.00000000"


class Container:
    """One container's log, as its shipper sends it."""

    def __init__(self, partition: int, pod: str) -> None:
        self.host = HOSTS[partition]
        self.source = f"shop/{pod}/uid-{pod}/web/0"
        self.offset = 0
        self.sent: list[tuple[Batch, bytes]] = []

    async def send(self, made: Lettered, *lines: str) -> int:
        """Send *lines* of the format CRI, and return the sequence."""
        data = "".join(f"{TIME}{n}Z {line}\n" for n, line in enumerate(lines)).encode()
        packed = zstandard.ZstdCompressor().compress(data)
        batch = Batch(
            source=self.source,
            generation="0123456789abcdef",
            start=self.offset,
            end=self.offset + len(data),
            lines=len(lines),
            format="cri",
            compressed=True,
        )
        self.offset = batch.end
        self.sent.append((batch, packed))
        return await self.again(made, len(self.sent) - 1, resend=False)

    async def again(self, made: Lettered, number: int, *, resend: bool = True) -> int:
        """Send batch *number* once more, as after an outcome that nobody knew."""
        batch, packed = self.sent[number]
        attempt = f"{made.js.connection.new_inbox()}" if resend else ""
        name = message_id(source_key("test", self.host, self.source), batch, attempt=attempt)
        headers = encode_headers(replace(batch, resend=resend), name)
        subject = Subjects("app", PARTITIONS).of_host(self.host)
        return (await made.js.publish(subject, packed, headers)).sequence


async def mixed_load(made: Lettered) -> None:
    """Of each partition: two containers, fragments, a plain file, lines of a stranger, batches that
    come again, and a message that nobody can read.
    """
    for partition in range(PARTITIONS):
        one, two = Container(partition, "web-1"), Container(partition, "web-2")
        await one.send(made, "stdout F first", "stderr P a long ", "stderr F line")
        await two.send(made, "stdout F \x1b[31mred")
        await made.send(partition, b"plain\nlines\n")
        await one.send(made, "stdout F second")
        await one.again(made, 0)
        await made.publish(partition, b"a stranger's")
        await made.publish(partition, b"x", {"Log-Version": "9", "Log-Source": "x"})
        await two.send(made, "stdout P cut ", "stdout F once")
        await two.again(made, 1)
        await one.send(made, "stdout F third")


def files(folder: Path) -> dict[str, bytes]:
    """What was written, by path."""
    logs = folder / "logs"
    return {str(p.relative_to(logs)): p.read_bytes() for p in files_below(logs)}


async def collected(made: Lettered) -> dict[str, bytes]:
    """What the collector wrote, once it has all that is in the streams."""
    made.collector.start()
    await made.collector.ready()
    numbers = [await made.js.stream_info(f"APP_{n}") for n in range(PARTITIONS)]
    ends = [info["state"]["last_seq"] for info in numbers if info]

    async def is_committed() -> bool:
        return await committed(made) == ends

    await eventually(is_committed, what=f"all partitions are committed to {ends}")
    await made.collector.stop()
    return files(made.data)


async def committed(made: Lettered) -> list[int]:
    """How far each partition is committed."""
    bucket = Bucket(made.js, made.pipeline.names.state_bucket)
    entries = [await bucket.get(epoch_key("main", n)) for n in range(PARTITIONS)]
    return [EpochRecord.decode(entry.value).position.sequence if entry else 0 for entry in entries]


async def test_a_replay_is_what_the_collector_wrote_byte_for_byte(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """File by file, of a load with all that there is."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        await mixed_load(made)
        said = made.run("replay", "--out", str(tmp_path / "again"))
        wrote = await collected(made)

    assert files(tmp_path / "again") == wrote
    assert len(wrote) == 4 * PARTITIONS
    assert "3 messages could not be read" in said


async def test_a_replay_of_one_host_is_that_host_s_files(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """And of one pod its lines alone."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        await mixed_load(made)
        wrote = await collected(made)
        made.run("replay", "--host", HOSTS[1], "--out", str(tmp_path / "host"))
        made.run("replay", "--pod", "web-2", "--namespace", "shop", "--out", str(tmp_path / "pod"))

    of_host = {path: content for path, content in wrote.items() if path.startswith(HOSTS[1])}
    assert files(tmp_path / "host") == of_host
    assert files(tmp_path / "pod") == {
        path: content for path, content in wrote.items() if "web-2" in path
    }


async def test_two_halves_of_time_are_the_whole_though_lines_came_again_between(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What came again in the second half is known from the first."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        log = Container(0, "web-1")
        await log.send(made, "stdout F one", "stdout F two")
        first = await made.js.message("APP_0", await log.send(made, "stdout F three"))
        assert first is not None
        await log.again(made, 0)
        await log.again(made, 1)
        await log.send(made, "stdout F four")
        until, since = rfc3339_of(first.time_ns), rfc3339_of(first.time_ns + 1)
        made.run("replay", "--until", until, "--out", str(tmp_path / "a"))
        made.run("replay", "--since", since, "--out", str(tmp_path / "b"))
        made.run("replay", "--partition", "0", "--from-seq", "3", "--out", str(tmp_path / "c"))
        made.run("replay", "--partition", "0", "--to-seq", "2", "--out", str(tmp_path / "d"))

    path = f"{HOSTS[0]}/shop/web-1/web.log"
    assert files(tmp_path / "a") == files(tmp_path / "d") == {path: b"one\ntwo\nthree\n"}
    assert files(tmp_path / "b") == files(tmp_path / "c") == {path: b"four\n"}


async def test_a_replay_that_was_killed_goes_on_and_ends_with_the_same_files(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The same words again, in the same folder; other words are refused there."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        size = 900_000
        for number in range(24):
            data = (f"{number:08d}" * (size // 8))[:-1].encode() + b"\n"
            for partition in range(PARTITIONS - 1):
                await made.send(partition, data, start=number * size)
            # Nothing but its sequence tells whether a stranger's line is there already.
            await made.publish(PARTITIONS - 1, data[:-1])
        folder = str(tmp_path / "again")
        made.run(
            "replay",
            "--out",
            folder,
            code=-signal.SIGKILL,
            LOGPIPELINE_FAILPOINT="replay.committed:2",
        )
        begun = sum(map(len, files(tmp_path / "again").values()))
        assert 0 < begun < 24 * size * PARTITIONS
        assert "holds another replay" in made.run("replay", "--pod", "x", "--out", folder, code=1)
        made.run("replay", "--out", folder)
        assert "holds this replay, complete" in made.run("replay", "--out", folder, code=1)
        made.run("replay", "--out", str(tmp_path / "once"))

    assert hashes(tmp_path / "again") == hashes(tmp_path / "once")
    assert sum(map(len, files(tmp_path / "once").values())) == 24 * size * PARTITIONS


def hashes(folder: Path) -> dict[str, str]:
    """The files of *folder*, too large to be printed."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in files(folder).items()}


async def test_a_paced_replay_keeps_the_order_of_all_partitions(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """As it was stored, though each partition has a stream of its own."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        expected = [f"line {number}" for number in range(60)]
        for number, line in enumerate(expected):
            await made.publish(number * 7 % PARTITIONS, line.encode())

        printed = replayed(made, "--speed", "100000", "--output", "raw")

    assert printed.decode().splitlines() == expected


def replayed(made: Lettered, *words: str) -> bytes:
    """What a replay writes to standard output."""
    done = warm.run(["replay", "--out", "-", *words, *made.here], timeout_s=WITHIN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_standard_output_has_whole_lines_in_the_form_that_is_asked_for(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Fragments are joined but in cri, and what came again is cut."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        log = Container(0, "web-1")
        await log.send(made, "stdout P a long ", "stdout F line")
        await log.again(made, 0)
        raw, cri, lines = (replayed(made, "--output", form) for form in ("raw", "cri", "json"))

    assert raw == b"a long line\n"
    assert cri.decode() == f"{TIME}0Z stdout P a long \n{TIME}1Z stdout F line\n"
    assert [json.loads(line)["message"] for line in lines.splitlines()] == ["a long line"]


async def test_a_replay_that_follows_goes_on_after_the_server_was_away(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """From the next message on: none twice, none left out."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        await made.publish(0, b"one")
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "replay", "--out", "-", "--follow", "--output", "raw", *made.here,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(WITHIN_S):
                assert await process.stdout.readline() == b"one\n"
                nats_server.kill()
                await nats_server.start()
                await made.js.connection.wait_connected()
                await made.publish(0, b"two")
                await made.publish(0, b"three")
                assert await process.stdout.readline() == b"two\n"
                assert await process.stdout.readline() == b"three\n"
        finally:
            process.kill()
            await process.wait()


async def test_what_is_gone_is_said_and_the_rest_is_written_only_when_that_is_meant(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """In one sentence, which tells what is still there; nothing is written then."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        for line in range(6):
            await made.publish(0, f"line {line}".encode())
        await made.js.call("STREAM.PURGE.APP_0", {"seq": 4})
        words = ("replay", "--partition", "0", "--from-seq", "2", "--out", str(tmp_path / "no"))

        said = made.run(*words, code=1)
        assert "no longer has what begins at sequence 2; it still has 4 to 6" in said
        assert said.count("\n") == 1
        assert not (tmp_path / "no").exists()
        made.run(*words, "--partial")

    (content,) = files(tmp_path / "no").values()
    assert content == b"line 3\nline 4\nline 5\n"


async def test_no_replay_writes_where_others_do_or_from_where_nothing_is(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A folder with files in it, and a stream that is not there."""
    async with lettered(nats_server, tmp_path, NO_CONSUMER) as made:
        (tmp_path / "taken").mkdir()
        (tmp_path / "taken" / "x").touch()
        assert "is not empty" in made.run("replay", "--out", str(tmp_path / "taken"), code=1)
        await made.js.call("STREAM.DELETE.APP_2")
        assert "there is no stream APP_2" in made.run("replay", "--out", "-", code=1)
