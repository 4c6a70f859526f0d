"""What docs/consuming.md tells people to type for NATS' own command line does what it says; the
command line is built from its module.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from components.consuming import HOSTS, PARTITIONS, Reading, Streams
from components.consuming_page import Section, sections
from go_programs import built
from logpipeline.nats.jetstream import ApiError
from waiting import eventually

pytestmark = pytest.mark.long

SECTIONS = sections()
WRITTEN = 3
FIRST = HOSTS[0]

Check = Callable[[Streams, Reading], Awaitable[None]]


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with lines, and what the snippets find beside them."""
    await streams.write(WRITTEN)
    (streams.folder / "app.log").write_text("a line of a file\n")
    book = streams.folder / "book.sh"
    book.write_text("#!/bin/sh\ncat\n")
    book.chmod(0o755)
    with sqlite3.connect(streams.folder / "billing.db") as database:
        database.execute("CREATE TABLE positions (stream TEXT, position TEXT)")
        database.execute("INSERT INTO positions VALUES ('LOGS_0', '1 of a stream')")
    return streams


def play(streams: Streams, found: Section, folder: Path) -> Reading:
    """Run the snippet as a shell script."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "nats").symlink_to(built("nats"))
    _stand_in_for_sqlite3(programs / "sqlite3")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return streams.start(["sh", "-c", found.snippets["sh nats"][0]], PATH=path, HOME=str(folder))


def _stand_in_for_sqlite3(path: Path) -> None:
    """Put a program at *path* that answers a question as sqlite3 does, which a machine may lack."""
    path.write_text(
        f"#!{sys.executable}\nimport sqlite3, sys\n"
        "print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())\n"
    )
    path.chmod(0o755)


def end(reading: Reading) -> None:
    """End the snippet, which may follow the streams for ever, with what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(reading.process.pid, signal.SIGKILL)
    reading.process.wait()


def printed(hosts: list[str], rounds: range, times: int = 1) -> Check:
    """A check that exactly these lines are printed, each so many times."""

    async def check(streams: Streams, reading: Reading) -> None:
        wanted = sorted([f"{host} {number}" for host in hosts for number in rounds] * times)

        def found() -> list[str]:
            return sorted(line for line in reading.lines if line.split(" ")[0] in HOSTS)

        await eventually(lambda: len(found()) >= len(wanted), what="the lines")
        assert found() == wanted

    return check


def acknowledged(consumer: str, up_to: int) -> Check:
    """A check that the first stream's messages are acknowledged so far."""

    async def check(streams: Streams, reading: Reading) -> None:
        async def floor() -> bool:
            with suppress(ApiError):
                info = await streams.consumer(consumer)
                return bool(info["ack_floor"]["stream_seq"] == up_to)
            return False

        await eventually(floor, what=f"message {up_to} is acknowledged")

    return check


def both(*checks: Check) -> Check:
    """One check after the other."""

    async def check(streams: Streams, reading: Reading) -> None:
        for each in checks:
            await each(streams, reading)

    return check


async def only_new(streams: Streams, reading: Reading) -> None:
    """Lines that were there before the consumers are not read."""

    async def is_made() -> bool:
        with suppress(ApiError):
            for number in range(PARTITIONS):
                await streams.consumer("dashboard", number)
            return True
        return False

    await eventually(is_made, what="the consumers")
    await streams.write(1)
    await printed([*HOSTS], range(WRITTEN, WRITTEN + 1))(streams, reading)


def hundred(consumer: str) -> Check:
    """A check that the 100th message is acknowledged, and so all before it."""

    async def check(streams: Streams, reading: Reading) -> None:
        for _ in range(100 - WRITTEN):
            await streams.send(FIRST)
        await both(printed([FIRST], range(100)), acknowledged(consumer, 100))(streams, reading)

    return check


async def position_in_a_file(streams: Streams, reading: Reading) -> None:
    """The first message, and its sequence beside it."""
    await reading.ends(0)
    assert f"{FIRST} 0" in (streams.folder / "loaded-1").read_text()
    assert (streams.folder / "LOGS_0.last").read_text() == "1\n"


async def position_in_a_bucket(streams: Streams, reading: Reading) -> None:
    """The first message, and its sequence in a bucket, by compare-and-swap."""
    await reading.ends(0)
    assert f"{FIRST} 0" in reading.lines
    stored = await streams.js.stream_info("KV_billing")
    assert stored is not None
    assert stored["state"]["last_seq"] == 2


async def in_a_file(streams: Streams, reading: Reading) -> None:
    """The lines of one stream, in order."""
    ledger = streams.folder / "ledger"

    def lines() -> list[str]:
        return ledger.read_text().split("\n") if ledger.exists() else []

    await eventually(lambda: f"{FIRST} {WRITTEN - 1}" in lines())
    assert [line for line in lines() if line] == [f"{FIRST} {n}" for n in range(WRITTEN)]


async def given_up(streams: Streams, reading: Reading) -> None:
    """What the server says of a message that was given up is shown."""
    await eventually(lambda: "Subscribing" in reading.log)
    info = await streams.consumer("parser")
    assert info["config"]["max_deliver"] == 3
    subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.LOGS_0.parser"
    await streams.js.connection.publish(subject, b"given up")
    await eventually(lambda: "given up" in reading.lines)


def stored(line: str, times: int) -> Check:
    """A check that *line* is the first stream's newest message, stored so many times."""

    async def check(streams: Streams, reading: Reading) -> None:
        async def is_there() -> bool:
            info = await streams.js.stream_info("LOGS_0")
            return info is not None and info["state"]["last_seq"] == WRITTEN + times

        await eventually(is_there, what="the line is stored")
        message = await streams.js.next_from_leader("LOGS_0", WRITTEN + times, ">")
        assert message is not None
        assert message.data.decode() == line

    return check


async def the_next_message(streams: Streams, reading: Reading) -> None:
    """The message behind the position in the database."""
    await reading.ends(0)
    assert f"{FIRST} 1" in reading.lines


CHECKS: dict[str, Check] = {
    "New messages only": only_new,
    "Back after a day": printed([*HOSTS], range(WRITTEN)),
    "Full history, then live": printed([*HOSTS], range(WRITTEN)),
    "Exactly once, state in a file": position_in_a_file,
    "Exactly once, for a group": position_in_a_bucket,
    "Work sharing": both(printed([*HOSTS], range(WRITTEN)), acknowledged("mailer", WRITTEN)),
    "Manual acknowledgement": both(printed([FIRST], range(1)), acknowledged("loader", 1)),
    "One in flight, in order": both(in_a_file, acknowledged("ledger", WRITTEN)),
    "Stop, mend, go on": both(printed([FIRST], range(1)), acknowledged("ledger", 1)),
    "Acknowledge every 100 or 30 seconds": hundred("counter"),
    "Pull 100, acknowledge the last": hundred("loader"),
    "At most three deliveries, then a dead letter": given_up,
    "Push for fshipper's consumer": printed([FIRST], range(WRITTEN)),
    "Lines sent without waiting": stored("a line of a file", 1),
    "Audit: each line acknowledged": stored("line 17", 1),
    "Redundant groups": printed([FIRST], range(WRITTEN), times=2),
    "In your own database": the_next_message,
}


@pytest.mark.parametrize("found", SECTIONS, ids=lambda found: found.title)
async def test_each_snippet_does_what_its_use_case_says(
    streams: Streams, tmp_path: Path, found: Section
) -> None:
    """Word for word, against the streams of a pipeline."""
    reading = play(streams, found, tmp_path)
    try:
        await CHECKS[found.title](streams, reading)
    finally:
        end(reading)
        print(reading.log[-2000:])


async def test_a_line_is_stored_once_whoever_sends_it_again(
    streams: Streams, tmp_path: Path
) -> None:
    """By its id, as the use case says."""
    (found,) = [each for each in SECTIONS if each.title == "Audit: each line acknowledged"]
    for _ in range(2):
        reading = play(streams, found, tmp_path)
        await reading.ends(0)
        (tmp_path / "programs" / "nats").unlink()

    await stored("line 17", 1)(streams, reading)


def test_each_use_case_is_tried() -> None:
    """By the command line of NATS, too."""
    assert [found.title for found in SECTIONS] == [*CHECKS]
