"""A stranger publishes garbage to our subjects while lines flow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import zstandard

from components import raw_nats
from components.collecting import HOSTS, PARTITIONS, Source, collecting, config_for, pipeline
from components.strange_messages import strange_messages
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.embedded import EmbeddedServer
from logpipeline.subjects import Subjects
from logpipeline.wire import BATCH_BYTES_MAX, MESSAGE_ID, Batch, encode_headers
from waiting import eventually

STRANGER = "stranger"
ROUNDS = 10
BOMB_BYTES = 4 * BATCH_BYTES_MAX

Message = tuple[str, bytes, dict[str, str]]


async def test_garbage_bombs_and_wrong_ranges_change_nothing(tmp_path: Path, seed: int) -> None:
    """Each bad message is kept aside and counted, and each line of the others is collected once."""
    rng = random.Random(seed)
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1000)
        host = rng.choice([source.key.host for source in pipeline.writers.sources])
        subjects = Subjects(pipeline.pipeline.names.subject, pipeline.shape.partitions)
        sent = 0
        for _ in range(ROUNDS):
            for subject, payload, headers in _bad_messages(rng, subjects, host):
                await pipeline.js.publish(subject, payload, headers)
                sent += 1
            # Without headers it is a line of its own, as a stranger's program may well write.
            await pipeline.js.publish(subjects.of_host(STRANGER), rng.randbytes(200))
            await pipeline.write(100)

        async def are_counted() -> bool:
            pages = [await pipeline.components[name].metrics() for name in pipeline.members]
            counted = sum(page.get("dead_letters_total", 0) for page in pages)
            assert counted == sent, f"{counted} of {sent} dead letters"
            return True

        await eventually(are_counted, what="all are counted")
        kept = await pipeline.js.stream_info(pipeline.pipeline.names.dead_letter_stream)
        verdict = await pipeline.settle(is_ignored=lambda place: place.startswith(f"{STRANGER}/"))

    assert verdict.is_clean, verdict.explain()
    assert kept is not None
    # A letter in the name of one host is not kept above its rate, only counted.
    assert 0 < kept["state"]["messages"] <= sent


async def test_nothing_that_a_stranger_publishes_stops_a_collector(
    nats_server: EmbeddedServer, tmp_path: Path, seed: int
) -> None:
    """It is collected or kept aside, whatever bytes it has; what comes behind it is collected."""
    source, count = Source(HOSTS[0]), 600
    subject = Subjects("logs", PARTITIONS).of_host(source.host)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "before")
            messages = strange_messages(seed, count, subject)
            await raw_nats.publish(nats_server.url, *messages)
            last = await source.send(made.js, "after")
            await made.until_committed(last.sequence)

    assert last.sequence == count + 2
    assert source.collected(tmp_path / "c") == source.sent


def _bad_messages(rng: random.Random, subjects: Subjects, host: str) -> Iterator[Message]:
    """Yield messages in the name of *host*, none of which can be believed."""
    ours = subjects.of_host(host)
    good = Batch(
        source=f"/var/log/{rng.getrandbits(32)}",
        generation=f"{rng.getrandbits(64):016x}",
        start=0,
        end=6,
        lines=1,
        format="plain",
    )
    headers = encode_headers(good, "")
    del headers[MESSAGE_ID]  # equal ids would make one of them all
    noise = rng.randbytes(300)
    bomb = zstandard.ZstdCompressor().compress(bytes(BOMB_BYTES))
    yield ours, b"longer than it says\n", headers
    yield ours, b"line1\n", {**headers, "Log-Range": "6-0"}
    yield ours, b"line1\n", {**headers, "Log-Range": f"0-{1 << 70}"}
    yield ours, b"line1\n", {**headers, "Log-Version": "999"}
    yield ours, b"line1\n", {**headers, "Log-Generation": "../../etc/passwd"}
    yield ours, b"line1\n", {**headers, "Log-Format": "exe"}
    yield ours, noise, {**headers, "Content-Encoding": "zstd"}
    yield ours, bomb, {**headers, "Content-Encoding": "zstd"}
    yield ours, bomb, {**headers, "Content-Encoding": "zstd", "Log-Range": f"0-{BOMB_BYTES}"}
    yield f"{subjects.root}.p0.{STRANGER}$", b"a host with a bad name", {}
