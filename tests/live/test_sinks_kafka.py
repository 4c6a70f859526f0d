"""`logpipeline sink kafka` with a real broker: each line once for a reader of what is committed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.consuming import HOSTS, Streams, in_order
from components.kafka_broker import Broker, kafka_broker
from components.sink_batches import CREATED, batch_of, message, plain_batch
from faults.settings import is_soak
from logpipeline.consuming.message import Batch
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.sinks import kafka
from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain
from waiting import eventually

LATER = "2026-11-25T11:00:00.000000001Z"
LIMIT = 20_000
SEED = 5
# A broker in Java takes seconds where it has a processor, and minutes where others use it.
WITHIN_S = 180
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that starts with the first test that asks for it; each test has its own topics."""
    with kafka_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


def words(broker: Broker, topic: str, *more: str, name: str = "") -> tuple[str, ...]:
    """Return the command that copies into *topic*."""
    return ("sink", "kafka", name or topic, "--brokers", broker.address, "--topic", topic, *more)


def destination(broker: Broker, topic: str, *more: str) -> kafka.KafkaDestination:
    """Return the destination that a user would name."""
    return kafka.destination_of(build_parser().parse_args([*words(broker, topic, *more)]))


def texts(broker: Broker, topic: str, *, committed: bool = True) -> list[str]:
    """Return the lines that a reader of *topic* gets."""
    records = broker.records(topic, committed=committed)
    return [json.loads(record.value)["message"] for record in records]


async def test_lines_are_copied_in_order_and_the_next_start_goes_on(
    streams: Streams, broker: Broker
) -> None:
    """Each line once, those of a host in one partition; what came meanwhile is copied later."""
    broker.create("flow")
    for _ in range(2):
        await streams.write(20, lines=3)
        command = words(broker, "flow", "--until-caught-up", "--batch", "7")
        log = await streams.command(*command).ends(0, within_s=WITHIN_S)
        assert "60 processed" in log
    records = broker.records("flow")
    found = [json.loads(record.value)["message"] for record in records]

    assert in_order(found)
    assert sorted(found) == sorted(streams.written)
    assert {record.key.decode() for record in records} == set(HOSTS)
    assert len({(record.key, record.partition) for record in records}) == len(HOSTS)
    assert records[0].headers["source"] == b"/var/log/app.log"
    assert len({record.headers["id"] for record in records}) == len(records)


async def test_a_batch_that_comes_again_is_there_once(broker: Broker) -> None:
    """From a process that has just started, cut in another way, or under a stream's new life."""
    broker.create("again", partitions=1)
    for _ in range(2):
        made = destination(broker, "again")
        await made.open()
        await made.write(plain_batch(b"one", b"two", first=7))
        await made.write(plain_batch(b"one", b"two", first=7))
        await made.close()
    made = destination(broker, "again")
    await made.write(plain_batch(b"two", b"three", first=8))
    await made.write(plain_batch(b"anew", first=7, created=LATER))
    await made.close()

    assert CREATED != LATER
    assert texts(broker, "again") == ["one", "two", "three", "anew"]


async def test_a_sink_that_was_frozen_repeats_nothing(broker: Broker) -> None:
    """Another one has its stream meanwhile: both go on, and each line is there once."""
    broker.create("zombie", partitions=1)
    former, successor = destination(broker, "zombie"), destination(broker, "zombie")
    await former.write(plain_batch(b"one", first=1))
    await successor.write(plain_batch(b"two", first=2))
    with pytest.raises(TryAgain, match="another process writes as this sink"):
        await former.write(plain_batch(b"two", first=2))
    await former.write(plain_batch(b"two", first=2))
    with pytest.raises(TryAgain, match="another process writes as this sink"):
        await successor.write(plain_batch(b"three", first=3))
    await successor.write(plain_batch(b"three", first=3))
    await former.close()
    await successor.close()

    assert texts(broker, "zombie") == ["one", "two", "three"]


async def test_lines_go_to_the_topic_of_their_namespace(broker: Broker) -> None:
    """A topic that is not there is named and not made, though this broker would make it."""
    broker.create("of-shop", "of-none", partitions=1)
    cri = b"2026-11-25T10:00:00.000000001Z stdout F web\n"
    batch = batch_of([message(1, b"plain\n"), message(2, cri, form="cri")])
    for _ in range(2):
        made = destination(broker, "of-{namespace}")
        await made.write(batch)
        await made.close()
    other = destination(broker, "other-{namespace}")
    with pytest.raises(Misdirected, match="has no topic other-none: create it"):
        await other.write(batch)
    mistyped = destination(broker, "mistyped")
    with pytest.raises(Misdirected, match="has no topic mistyped: create it"):
        await mistyped.open()

    assert texts(broker, "of-shop") == ["web"]
    assert texts(broker, "of-none") == ["plain"]
    assert not {"other-none", "mistyped"} & broker.topics()


async def test_reset_copies_again(streams: Streams, broker: Broker) -> None:
    """What is forgotten here is forgotten in Kafka, too: else it would be left out, silently."""
    broker.create("reset")
    await streams.write(2)
    await streams.command(*words(broker, "reset", "--until-caught-up")).ends(0, within_s=WITHIN_S)
    assert any(group.startswith("logpipeline.reset.LOGS_0.") for group in broker.groups())
    command = words(broker, "reset", "--until-caught-up", "--reset", "--yes")
    await streams.command(*command).ends(0, within_s=WITHIN_S)

    assert sorted(texts(broker, "reset")) == sorted(streams.written * 2)


async def test_only_a_record_that_is_too_large_is_refused(broker: Broker) -> None:
    """Not others that are too large only together; and nothing of its batch is committed."""
    broker.create("large", partitions=1, max_message_bytes=str(LIMIT))
    dice = random.Random(SEED)
    small = [dice.randbytes(LIMIT // 4).hex().encode() for _ in range(5)]
    large = dice.randbytes(LIMIT).hex().encode()
    made = destination(broker, "large", "--compression", "none")
    await made.write(plain_batch(*small, first=1))
    with pytest.raises(Refused, match="Message size too large"):
        await made.write(plain_batch(b"before", large, b"behind", first=10))
    await made.write(plain_batch(b"before", first=10))
    with pytest.raises(Refused):
        await made.write(plain_batch(large, first=11))
    await made.write(plain_batch(b"behind", first=12))
    await made.close()

    assert texts(broker, "large") == [text.decode() for text in small] + ["before", "behind"]


async def test_what_is_refused_stops_it_or_becomes_a_dead_letter(
    streams: Streams, broker: Broker
) -> None:
    """As --on-error says; of a batch only the message with the line that is too large."""
    broker.create("refused", max_message_bytes=str(LIMIT))
    await streams.send(HOSTS[0])
    await streams.store(HOSTS[0], 1000, b"x" * 2 * LIMIT + b"\n")
    await streams.send(HOSTS[0])
    command = words(broker, "refused", "--until-caught-up", "--compression", "none")
    log = await streams.command(*command).ends(1, within_s=WITHIN_S)
    assert "of stream LOGS_0 could not be processed" in log
    assert "Message size too large" in log
    log = await streams.command(*command, "--on-error", "dead-letter").ends(0, within_s=WITHIN_S)

    assert "1 dead letters" in log
    assert texts(broker, "refused") == streams.written


async def test_a_broker_that_is_away_is_waited_for_and_named(
    streams: Streams, tmp_path: Path
) -> None:
    """At the start, and while lines are copied; each line is there once when it is back."""
    with kafka_broker(tmp_path / "broker") as broker:
        broker.create("away")
        broker.kill()
        await streams.write(10)
        sink = streams.command(*words(broker, "away", "--batch", "5", "--timeout", "20s"))
        await eventually(lambda: "it is waited for" in sink.log, within_s=WITHIN_S)
        broker.start()
        await eventually(lambda: streams.is_caught_up("away"), within_s=WITHIN_S)
        # A broker alone that dies before it has marked what it confirmed may lose it: its defect.
        await eventually(broker.is_at_rest, within_s=WITHIN_S)
        broker.kill()
        said = sink.log.count("not written yet")
        await streams.write(10)
        await eventually(lambda: sink.log.count("not written yet") > said, within_s=WITHIN_S)
        broker.start()
        await eventually(lambda: streams.is_caught_up("away"), within_s=WITHIN_S)
        await sink.stop()
        found = texts(broker, "away")

    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_a_transaction_that_kafka_does_not_finish_is_named(tmp_path: Path) -> None:
    """A sink that has just started cannot learn how far the stream is copied, and waits."""
    with kafka_broker(tmp_path / "broker") as broker:
        broker.create("hangs", partitions=1)
        sink = destination(broker, "hangs")
        await at_last(sink, plain_batch(b"one", first=1))
        await at_last(sink, plain_batch(b"two", first=2))
        await sink.close()
        await eventually(broker.is_at_rest, within_s=WITHIN_S)
        broker.kill()
        broker.lose_markers()
        broker.start()
        sink = destination(broker, "hangs", "--timeout", "5s")
        with pytest.raises(TryAgain, match="a transaction that it does not finish"):
            await sink.write(plain_batch(b"three", first=3))
        await sink.close()
        found = texts(broker, "hangs")

    assert found == ["one"]


async def at_last(sink: kafka.KafkaDestination, batch: Batch) -> None:
    """Write *batch* as a reader does: again, until it is there."""
    while True:
        with contextlib.suppress(TryAgain):
            await sink.write(batch)
            return


async def test_a_broker_that_wants_a_login_takes_the_right_one(
    streams: Streams, tmp_path: Path
) -> None:
    """A wrong one ends the sink, which says so and blames no line."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("shop:word\n")
    wrong.write_text("shop:guessed\n")
    with kafka_broker(tmp_path / "broker", has_login=True) as broker:
        broker.create("login")
        await streams.write(5)
        command = words(broker, "login", "--until-caught-up", "--on-error", "dead-letter")
        log = await streams.command(*command, "--login-file", str(wrong)).ends(1, within_s=WITHIN_S)
        assert "check the login" in log
        assert "guessed" not in log
        await streams.command(*command, "--login-file", str(right)).ends(0, within_s=WITHIN_S)
        found = texts(broker, "login")

    assert sorted(found) == sorted(streams.written)


# --- Kills

# Between two of: all lines sent, position in the transaction, committed, said to be processed,
# position kept, acknowledged.
POINTS = (
    "kafka.sent",
    "kafka.positioned",
    "sink.written",
    "consume.processed",
    "consume.saved",
)
# Each place once; a broker takes long to come back.
POINT_ROUNDS, RANDOM_ROUNDS, BROKER_ROUNDS = (15, 8, 3) if is_soak() else (5, 5, 2)


async def stored(broker: Broker) -> int:
    """Return how many records there are, committed or not."""
    return len(await asyncio.to_thread(broker.records, "killed", committed=False))


async def reaches(broker: Broker, count: int) -> None:
    """Return once there are so many records."""

    async def is_there() -> bool:
        return await stored(broker) >= count

    await eventually(is_there, within_s=WITHIN_S)


async def test_kills_of_sink_and_broker_lose_and_repeat_nothing(
    streams: Streams, broker: Broker
) -> None:
    """At each place of a transaction, at any other moment, and with a broker that dies with it."""
    dice = random.Random(SEED)
    broker.create("killed")
    command = words(broker, "killed", "--batch", "5", "--timeout", "20s")
    for number in range(POINT_ROUNDS):
        await streams.write(10, lines=2)
        point = f"{POINTS[number % len(POINTS)]}:{dice.randrange(1, 5)}"
        await streams.command(*command, point=point).ends(-signal.SIGKILL, within_s=WITHIN_S)
    for _ in range(RANDOM_ROUNDS):
        await streams.write(10, lines=2)
        wanted = await stored(broker) + dice.randrange(1, 40)
        sink = streams.command(*command)
        await reaches(broker, wanted)
        sink.kill()
    for number in range(BROKER_ROUNDS):
        await streams.write(20, lines=2)
        wanted = await stored(broker) + dice.randrange(1, 40)
        sink = streams.command(*command)
        await reaches(broker, wanted)
        broker.kill()
        if number % 2:
            sink.kill()
        broker.start()
        await streams.write(5, lines=2)
        sink.kill()
    await streams.command(*command, "--until-caught-up").ends(0, within_s=WITHIN_S)
    found, all_records = texts(broker, "killed"), texts(broker, "killed", committed=False)

    assert len(all_records) > len(found), "nothing was taken back: the test shows nothing"
    assert in_order(found)
    assert sorted(found) == sorted(streams.written)
