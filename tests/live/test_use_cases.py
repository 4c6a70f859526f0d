"""Each use case of the samples, with its subscriber killed in mid-stream over three partitions; and
again with the option that it shows taken away, to see that it is the option which does it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from components.consuming import COMMAND_S, HOSTS, PARTITIONS, Reading, in_order
from components.consuming_page import play_the_page
from components.use_cases import Sample, Scenario, Without, fails, holds, sample
from logpipeline.embedded import EmbeddedServer
from logpipeline.failpoints import VARIABLE
from logpipeline.nats.jetstream import rfc3339_of
from waiting import eventually

# Three for 250 messages, 100 at a time, and one for a death in each of the three that may be open.
ACKS_MAX = 6
# So long a wait that what is written meanwhile is processed first.
LONG_NS = 1_000_000_000
NUMBER = re.compile(rb"[0-9]+")
# As the sample says.
DELIVERIES_MAX = 3


async def read_until_killed(sample: Sample, count: int, **environment: str) -> Reading:
    """Read so many lines, and die."""
    reading = sample.start(**environment)
    await reading.until(count)
    reading.kill()
    return reading


async def new_messages_only(sample: Sample) -> None:
    """Nothing of before, all from then on, though the reader was away for a while."""
    streams = sample.streams
    await streams.write(4)
    first = sample.start()
    await eventually(lambda: consumers_made(sample, "dashboard"))
    before = list(streams.written)
    await streams.write(4)
    await first.until(6)
    first.kill()
    await streams.write(4)
    second = sample.start()
    await eventually(lambda: len({*first.lines, *second.lines}) >= 8 * PARTITIONS)
    assert {*first.lines, *second.lines} == set(streams.written) - set(before)


async def a_day_away(sample: Sample) -> None:
    """It begins at its time, and after the day goes on behind what it had acknowledged."""
    streams = sample.streams
    await streams.write(3)
    last = [await streams.js.last_message(f"LOGS_{n}", f"logs.p{n}.>") for n in range(PARTITIONS)]
    since = rfc3339_of(max(message.time_ns for message in last if message) + 1)
    before = len(streams.written)
    await streams.write(3)
    first = await read_until_killed(sample, 3 * PARTITIONS, SINCE=since)
    await streams.write(3)
    # A day later: what was meant by "since" then has passed, and the messages are still there.
    second = sample.start(SINCE="1ms")
    await streams.caught_up("nightly")
    assert {*first.lines, *second.lines} == set(streams.written[before:])
    found = [await streams.consumer("nightly", number) for number in range(PARTITIONS)]
    assert not any(each["config"].get("inactive_threshold") for each in found)


async def history_then_live(sample: Sample) -> None:
    """All of it, in order, though the reader dies between the two."""
    streams = sample.streams
    await streams.write(6)
    first = sample.start()
    await eventually(lambda: consumers_made(sample, "index"))
    await streams.write(1)
    await eventually(lambda: first.lines)
    assert first.lines[0].endswith(" 0")
    await first.until(9)
    first.kill()
    second = sample.start()
    await streams.write(3)
    await eventually(lambda: len({*first.lines, *second.lines}) == len(streams.written))
    assert in_order(sorted({*first.lines, *second.lines}, key=lambda line: int(line.split()[1])))


async def exactly_once(sample: Sample) -> None:
    """Killed when a batch was processed and nobody knew; no result is there twice."""
    streams = sample.streams
    await streams.write(30)
    await sample.start(**{VARIABLE: "consume.processed:2"}).ends(-9)
    await streams.write(3)
    # With other batches: what was begun must be handed out as it was all the same.
    await sample.start(BATCH="7", **{VARIABLE: "consume.processed:2"}).ends(-9)
    for _ in range(3 if "exactly-once-group" in streams.file.read_text() else 1):
        sample.start()
    await streams.caught_up("billing")
    assert sorted(loaded(sample)) == sorted(streams.written)


async def work_sharing(sample: Sample) -> None:
    """Three members each do a part of it; what a dead one had in hand, another one does."""
    streams = sample.streams
    members = [sample.start() for _ in range(3)]

    async def all_work() -> bool:
        await streams.write(1)
        ended = [member.log for member in members if member.has_ended]
        return bool(ended) or all(member.lines for member in members)

    await eventually(all_work)
    assert all(member.lines for member in members)
    members[0].kill()
    await streams.write(5)
    await streams.caught_up("mailer")
    assert {line for member in members for line in member.lines} == set(streams.written)


async def manual_ack(sample: Sample) -> None:
    """What a killed reader's command had not finished comes again."""
    streams = sample.streams
    await streams.write(5)
    await sample.start(**{VARIABLE: "consume.begun:2"}).ends(-9)
    sample.start()
    await streams.caught_up("loader")
    assert set(loaded(sample)) == set(streams.written)


async def one_in_flight(sample: Sample) -> None:
    """What must be tried again holds back what is behind it, for each member of the group."""
    streams = sample.streams
    folder = streams.folder
    # Without an order it is the server that has a message tried again, after a while.
    waits_ns: list[int] = []
    listener = await streams.js.connection.listen(
        "$JS.ACK.*.ledger.>",
        lambda message: waits_ns.extend(map(int, NUMBER.findall(message.data))),
    )
    first = sample.start()
    await streams.write(4)
    await eventually(lambda: lines_of(folder / "ledger"))
    (folder / "unreachable").touch()
    await streams.write(4)
    await eventually(
        lambda: first.log.count("tried again") > 1 or max(waits_ns, default=0) >= LONG_NS
    )
    await streams.js.connection.unlisten(listener)
    sample.start()
    await eventually(lambda: consumers_made(sample, "ledger"))
    (folder / "unreachable").unlink()
    await streams.write(4)
    await streams.caught_up("ledger")
    first.kill()
    await streams.write(4)
    await streams.caught_up("ledger")
    assert in_order(lines_of(folder / "ledger"))
    assert len(lines_of(folder / "ledger")) == len(streams.written)


async def stop_and_go_on(sample: Sample) -> None:
    """It ends at that line and does nothing behind it; once mended, it goes on there, in order."""
    streams = sample.streams
    folder = streams.folder
    (folder / "rules").write_text(f"{HOSTS[1]} 2$\n")

    def is_behind() -> bool:
        return f"{HOSTS[1]} 3" in lines_of(folder / "ledger")

    await streams.write(5)
    stopped = sample.start()
    await eventually(lambda: stopped.has_ended or is_behind(), within_s=COMMAND_S)
    assert not is_behind()
    log = await stopped.ends(1)
    assert "message 3 of stream LOGS_1 could not be processed" in log
    (folder / "rules").unlink()
    before = len(lines_of(folder / "ledger"))
    killed = sample.start()
    await eventually(lambda: len(lines_of(folder / "ledger")) > before)
    await streams.write(2)
    await killed.stop()
    sample.start()
    await streams.caught_up("ledger")
    assert in_order(lines_of(folder / "ledger"))


async def every_100_or_30s(sample: Sample) -> None:
    """After 150 messages of each partition 100 are acknowledged; the rest when time is up."""
    streams = sample.streams
    await streams.write(150)
    first = sample.start(INTERVAL="1h")
    await first.until(150 * PARTITIONS)
    assert await eventually(lambda: floors(sample, "counter", 100)) == [100] * PARTITIONS
    first.kill()
    second = sample.start(INTERVAL="300ms")
    await second.until(50 * PARTITIONS)
    await eventually(lambda: floors(sample, "counter", 150))
    assert {*first.lines, *second.lines} == set(streams.written)


async def pull_100_ack_last(sample: Sample) -> None:
    """250 messages of each partition take three acknowledgements, or one more for each death."""
    streams = sample.streams
    seen: Counter[bytes] = Counter()
    listener = await streams.js.connection.listen(
        "$JS.ACK.*.loader.>", lambda message: seen.update([message.subject.split(b".")[2]])
    )
    await streams.write(250)
    await sample.start(**{VARIABLE: "consume.processed:4"}).ends(-9)
    sample.start()

    async def is_over() -> bool:
        return max(seen.values(), default=0) > ACKS_MAX or await streams.is_caught_up("loader")

    await eventually(is_over, within_s=COMMAND_S)
    await streams.js.connection.unlisten(listener)
    assert all(3 <= count <= ACKS_MAX for count in seen.values())
    assert set(loaded(sample)) == set(streams.written)


async def dead_letter_after_3(sample: Sample) -> None:
    """The one that never goes well ends among the dead letters; all others are processed."""
    streams = sample.streams
    folder = streams.folder
    await streams.write(3)
    for host in HOSTS:
        await streams.js.publish(streams.subject(host), b"this is broken\n")
    await streams.write(3)
    deliveries: set[int] = set()
    listener = await streams.js.connection.listen(
        "$JS.ACK.*.parser.>", lambda message: deliveries.add(int(message.subject.split(b".")[4]))
    )
    first = sample.start()
    await eventually(lambda: lines_of(folder / "parsed"))
    first.kill()
    sample.start()

    async def is_over() -> bool:
        return max(deliveries, default=0) > DELIVERIES_MAX or await letters(sample, PARTITIONS)

    await eventually(is_over)
    await streams.js.connection.unlisten(listener)
    assert max(deliveries, default=0) == DELIVERIES_MAX
    await streams.caught_up("parser")
    assert set(lines_of(folder / "parsed")) == set(streams.written)


async def consumers_made(sample: Sample, name: str) -> bool:
    """Whether each partition has the consumer."""
    for number in range(PARTITIONS):
        names = await sample.streams.js.call(f"CONSUMER.NAMES.LOGS_{number}")
        if name not in (names["consumers"] or []):
            return False
    return True


async def floors(sample: Sample, name: str, wanted: int) -> list[int]:
    """How many messages of each partition are acknowledged, once it is as many of each."""
    found = [await sample.streams.consumer(name, number) for number in range(PARTITIONS)]
    counts = [int(each["ack_floor"]["stream_seq"]) for each in found]
    return counts if min(counts) >= wanted else []


async def letters(sample: Sample, count: int) -> bool:
    """Whether so many dead letters are there."""
    info = await sample.streams.js.stream_info("LOGS_dead")
    return info is not None and int(info["state"]["messages"]) >= count


def lines_of(path: Path) -> list[str]:
    """The lines of a file, none where it is not there yet."""
    return path.read_text().splitlines() if path.exists() else []


def loaded(sample: Sample) -> list[str]:
    """The lines of all results."""
    folder = sample.streams.folder / "loaded"
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return [line for path in files for line in path.read_text().splitlines()]


CASES: dict[str, tuple[Scenario, Without]] = {
    "new-messages-only": (new_messages_only, Without("--deliver new")),
    "a-day-away": (a_day_away, Without('--since "${SINCE:-24h}"')),
    "history-then-live": (history_then_live, Without("--deliver all", "--deliver new")),
    "exactly-once-file": (exactly_once, Without("--state billing.state")),
    "exactly-once-group": (exactly_once, Without("--state kv")),
    "work-sharing": (work_sharing, Without("--group")),
    "manual-ack": (manual_ack, Without("--ack each", "--ack none")),
    "in-order": (one_in_flight, Without("--in-order")),
    "stop-and-go-on": (stop_and_go_on, Without("--on-error stop", "--on-error dead-letter")),
    "every-100-or-30s": (every_100_or_30s, Without("--ack every=100,interval=${INTERVAL:-30s}")),
    "pull-100-ack-last": (pull_100_ack_last, Without("--ack all --batch 100")),
    "dead-letter-after-3": (
        dead_letter_after_3,
        Without("      maxDeliver: 3\n", file="logpipeline.yaml"),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
async def test_a_use_case_works(nats_server: EmbeddedServer, tmp_path: Path, name: str) -> None:
    """As its sample says."""
    await holds(nats_server, tmp_path / "sample", name, CASES[name][0])


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
async def test_it_does_not_without_its_option(
    nats_server: EmbeddedServer, tmp_path: Path, name: str
) -> None:
    """So it is the option that does it."""
    scenario, without = CASES[name]
    await fails(nats_server, tmp_path / "sample", name, scenario, without)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
async def test_it_works_from_python(nats_server: EmbeddedServer, tmp_path: Path, name: str) -> None:
    """By the program that docs/consuming.md shows for it, under the same kills."""
    async with sample(nats_server, tmp_path / "sample", name) as made:
        play_the_page(made.streams.folder, name)
        await CASES[name][0](made)
