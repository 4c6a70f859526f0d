"""``--count`` counts what is done with: a reader does not end with a batch that failed."""

from __future__ import annotations

import pytest

from components.consuming import HOSTS, PARTITIONS, Streams

MESSAGES = 10


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with messages."""
    await streams.write(MESSAGES)
    return streams


async def letters(streams: Streams) -> int:
    """How many dead letters there are."""
    info = await streams.js.stream_info("LOGS_dead")
    assert info is not None
    return int(info["state"]["messages"])


@pytest.mark.parametrize("words", [(), ("--group",)], ids=["alone", "shared"])
async def test_a_batch_with_a_bad_message_is_done_before_the_count_is_reached(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """Message by message, after the whole batch failed; and the reader does not read on."""
    await streams.send(HOSTS[0])
    done = streams.folder / "done"
    log = await streams.read(
        "own", *words, "--partitions", "0", "--batch", str(MESSAGES), "--count", str(MESSAGES),
        "--on-error", "dead-letter", "--exec", f"grep -q ' 3$' && exit 1; cat >> {done}",
        "--allow-unread",
    ).ends(0)  # fmt: skip

    assert await letters(streams) == 1
    assert f"{MESSAGES - 1} processed" in log
    assert (await streams.consumer("own"))["ack_floor"]["stream_seq"] == MESSAGES


async def test_a_batch_that_failed_is_done_though_others_reach_the_count(
    streams: Streams,
) -> None:
    """Of other partitions, which were ready before it was split."""
    first = streams.folder / "first"
    fails = f"mkdir {first} && echo $LOGPIPELINE_PARTITION > {first}/is && exit 1; cat"
    reading = streams.read(
        "own", "--batch", str(MESSAGES), "--count", str(MESSAGES), "--on-error", "dead-letter",
        "--allow-unread", "--exec", fails,
    )  # fmt: skip
    await reading.ends(0)

    host = HOSTS[int((first / "is").read_text())]
    assert {line for line in streams.written if line.startswith(host)} <= set(reading.lines)
    assert len(reading.lines) <= 2 * MESSAGES
    assert await letters(streams) == 0


@pytest.mark.parametrize("words", [(), ("--group",)], ids=["alone", "shared"])
async def test_a_batch_that_is_tried_again_does_not_count(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """When its tries are over, the reader stops over it."""
    again = ("--exec", "exit 75", "--tries", "2", "--partitions", "0")
    log = await streams.read("own", *words, "--count", "1", *again).ends(1)

    assert "message 1 of stream LOGS_0 could not be processed" in log


async def test_each_message_counts_once(streams: Streams) -> None:
    """However often its batch was tried."""
    once = "cat > all; mkdir $LOGPIPELINE_BATCH && exit 75; cat all"
    reading = streams.read(
        "own", "--state", "kv", "--batch", "2", "--count", str(2 * PARTITIONS), "--exec", once,
        "--allow-unread",
    )  # fmt: skip
    await reading.ends(0)

    assert len(set(reading.lines)) == len(reading.lines) >= 2 * PARTITIONS
