"""Where a group begins in partitions that it never had: decided once, and kept by every crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.collecting import CollectorProcess, Pipeline, Source, pipeline
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.jetstream import rfc3339_of
from logpipeline.partition import partition_of
from logpipeline_cli.target import ask
from waiting import eventually

PARTITIONS = 4
LOOK_AFTER_S = 0.5
TAKEN_OVER = "collector.after-take-over:1"


def sources_of_all() -> list[Source]:
    """Return a source in each partition, in the partitions' order."""
    hosts = {int(partition_of(f"host-{n}", PARTITIONS)): f"host-{n}" for n in range(100)}
    return [Source(hosts[number], partitions=PARTITIONS) for number in range(PARTITIONS)]


async def send_to_all(made: Pipeline, sources: list[Source], text: str) -> None:
    """Send one line of each source."""
    for source in sources:
        await source.send(made.js, f"{text} of {source.host}")


async def until_dead(process: CollectorProcess) -> None:
    """Return when *process* has ended by itself."""
    await eventually(lambda: process.exit_code is not None)


async def begun(made: Pipeline) -> dict[int, int]:
    """Return where the group began in each partition that it has begun."""
    records = {number: await made.epoch(number) for number in range(PARTITIONS)}
    return {number: record.begun for number, record in records.items() if record is not None}


async def missing_bytes(made: Pipeline) -> int:
    """Return what the collectors miss."""
    answers = await ask(made.js.connection, "_lp.logs")
    rows = [row for answer in answers["collector"] for row in answer["partitions"]]
    assert len(rows) == PARTITIONS
    return sum(int(row["missing_bytes"]) for row in rows)


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_group_that_wants_what_is_new_skips_nothing_after_its_first_take_over(
    nats_server: EmbeddedServer, tmp_path: Path, is_same: bool
) -> None:
    """Killed between take-over and first commit, again and again, by itself or with a successor in
    another folder, it goes on from where it began; and what came before is no loss.
    """
    sources, first = sources_of_all(), tmp_path / "a"
    options: dict[str, Any] = {"deliver_policy": "new", "partitions": PARTITIONS}
    last, member = (first, "collector-0") if is_same else (tmp_path / "b", "collector-1")
    async with pipeline(nats_server, PARTITIONS) as made:
        for text in ("oldest", "old"):
            await send_to_all(made, sources, text)
        await made.assign("collector-0")
        seen: dict[int, int] = {}
        for round_ in range(3):
            with CollectorProcess(
                nats_server, first, "collector-0", TAKEN_OVER, **options
            ) as dying:
                await until_dead(dying)
            now = await begun(made)
            assert now | seen == now, "where it began has moved"
            seen = now
            await send_to_all(made, sources, f"between {round_}")
        await made.assign(member)
        with CollectorProcess(nats_server, last, member, **options):
            for number in range(PARTITIONS):
                await made.until_owned(number, member)
            await send_to_all(made, sources, "after")
            for number, source in enumerate(sources):
                await made.until_committed(len(source.batches), number)
            missing = await missing_bytes(made)
        began = await begun(made)

    assert seen
    assert missing == 0
    for number, source in enumerate(sources):
        wanted = b"".join(data for _, data in source.batches[began[number] :])
        assert source.collected(*dict.fromkeys((first, last))) == wanted
        assert began[number] >= 2


async def test_a_group_begins_at_a_time(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """With the first message of that time or later, in each partition."""
    sources, folder = sources_of_all(), tmp_path / "c"
    async with pipeline(nats_server, PARTITIONS) as made:
        for text in ("oldest", "old", "new"):
            await send_to_all(made, sources, text)
        first_new = await made.js.message("LOGS_0", 3)
        assert first_new is not None
        await made.assign("collector-0")
        options: dict[str, Any] = {
            "deliver_policy": "byStartTime",
            "opt_start_time": rfc3339_of(first_new.time_ns),
            "partitions": PARTITIONS,
        }
        with CollectorProcess(nats_server, folder, "collector-0", **options):
            await send_to_all(made, sources, "newest")
            for number in range(PARTITIONS):
                await made.until_committed(4, number)

    for source in sources:
        assert source.collected(folder) == b"".join(data for _, data in source.batches[2:])


async def test_a_policy_says_nothing_about_partitions_that_were_begun(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Changed while the collector is away, it makes nobody skip a line."""
    sources, folder = sources_of_all(), tmp_path / "c"
    async with pipeline(nats_server, PARTITIONS) as made:
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folder, "collector-0", partitions=PARTITIONS):
            await send_to_all(made, sources, "one")
            for number in range(PARTITIONS):
                await made.until_committed(1, number)
        await send_to_all(made, sources, "while away")
        with CollectorProcess(
            nats_server, folder, "collector-0", partitions=PARTITIONS, deliver_policy="new"
        ):
            for number in range(PARTITIONS):
                await made.until_committed(2, number)

    for source in sources:
        assert source.collected(folder) == source.sent


async def test_what_a_group_left_out_stays_out_when_it_is_sent_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Another group may have missed it, and healed; for this one it is old."""
    source, folder = sources_of_all()[0], tmp_path / "c"
    options: dict[str, Any] = {"deliver_policy": "new", "partitions": PARTITIONS}
    async with pipeline(nats_server, PARTITIONS) as made:
        await source.send(made.js, "old")
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folder, "collector-0", **options):
            await made.until_owned(0, "collector-0")
            await source.send(made.js, "new")
            await source.send_again(made.js, 0, attempt="healing")
            await source.send(made.js, "newer")
            await made.until_committed(4)

    assert source.collected(folder) == b"new\nnewer\n"


@pytest.mark.parametrize("is_single", [False, True], ids=["partitions", "single"])
async def test_the_first_bytes_of_a_new_source_are_not_left_out_with_what_is_old(
    nats_server: EmbeddedServer, tmp_path: Path, is_single: bool
) -> None:
    """Their message was removed from the stream before the collector read it: they are missing."""
    sources, folder = sources_of_all(), tmp_path / "c"
    late = Source(sources[0].host, path="/var/log/late.log", partitions=PARTITIONS)
    options: dict[str, Any] = {"deliver_policy": "new", "partitions": PARTITIONS}
    if is_single:
        options["single_stream_silence_s"] = LOOK_AFTER_S
    async with pipeline(nats_server, PARTITIONS, is_single=is_single) as made:
        await send_to_all(made, sources, "old")
        await made.assign("collector-0")
        with CollectorProcess(nats_server, folder, "collector-0", **options):
            for number in range(PARTITIONS):
                await made.until_owned(number, "collector-0")
            ack = await sources[0].send(made.js, "new")
            await made.until_committed(ack.sequence)
        removed = await late.send(made.js, "first")
        kept = await late.send(made.js, "second")
        await made.js.call(f"STREAM.MSG.DELETE.{kept.stream}", {"seq": removed.sequence})
        with CollectorProcess(nats_server, folder, "collector-0", **options):
            await made.until_committed(kept.sequence)
            missing = await missing_bytes(made)

    assert missing == len(b"first\n")
    assert late.collected(folder) == b"second\n"
