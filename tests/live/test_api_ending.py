"""A reader that cannot go on says so, each time that it is asked; it does not go on by halves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import logpipeline
from components.consuming import Streams
from logpipeline.consuming.claims import Claims, HeldClaim
from waiting import WITHIN_S

MESSAGES = 3


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with messages."""
    await streams.write(MESSAGES)
    return streams


async def raises_again(reader: logpipeline.Reader, match: str) -> None:
    """See that each further call raises at once what the first one raised."""
    calls = (reader.next, reader.settle, reader.caught_up, reader.next)
    for call in calls:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(logpipeline.ConsumeError, match=match):
                await call()


@pytest.mark.parametrize("partitions", ["0", None])
async def test_a_state_that_cannot_be_written_ends_its_reader(
    where: dict[str, Any], tmp_path: Path, partitions: str | None
) -> None:
    """Also where other partitions could be read on. The batch comes again to the next one."""
    folder, away = tmp_path / "states", tmp_path / "away"
    folder.mkdir()
    options: Any = {"state": folder / "billing.state", "partitions": partitions, **where}
    options["state"] = str(options["state"])
    async with logpipeline.open_reader("billing", **options) as reader:
        async with asyncio.timeout(WITHIN_S):
            batch = await anext(reader)
            folder.rename(away)
            with pytest.raises(logpipeline.ConsumeError, match=r"billing\.state cannot be written"):
                await reader.next()
        away.rename(folder)
        await raises_again(reader, "cannot be written")

    async with asyncio.timeout(WITHIN_S):
        again = [
            each async for each in logpipeline.consume("billing", **options, until_caught_up=True)
        ]

    assert batch.id in {each.id for each in again}


async def test_a_reader_that_stopped_over_a_batch_hands_out_no_others(
    where: dict[str, Any],
) -> None:
    """Of any partition: who goes on after the error would not see that one is left out."""
    async with logpipeline.open_reader("billing", **where) as reader:
        async with asyncio.timeout(WITHIN_S):
            (await anext(reader)).reject("no good")
            with pytest.raises(logpipeline.ConsumeError, match="no good"):
                await reader.next()
        await raises_again(reader, "no good")


async def test_a_partition_that_cannot_be_read_ends_its_reader(
    streams: Streams, where: dict[str, Any]
) -> None:
    """Also one beside others that can be."""
    await streams.js.call("STREAM.DELETE.LOGS_1")
    async with logpipeline.open_reader("billing", **where) as reader:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(logpipeline.ConsumeError, match="there is no stream LOGS_1"):
                await _all_of(reader)
        await raises_again(reader, "there is no stream LOGS_1")


async def _all_of(reader: logpipeline.Reader) -> None:
    async for _ in reader:
        pass


async def test_a_reader_is_not_caught_up_before_it_has_its_partitions(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer may be further than the position, and only who has the claim reads that."""
    options: Any = {"partitions": "0", "until_caught_up": True, **where}
    real, may_take = Claims.take, asyncio.Event()

    async def slow(self: Claims, partition: int) -> HeldClaim | None:
        await may_take.wait()
        return await real(self, partition)

    async with asyncio.timeout(WITHIN_S):
        first, *rest = [batch async for batch in logpipeline.consume("billing", **options)]
        # Restored from a backup.
        options["positions"] = {first.stream: first.position}
        monkeypatch.setattr(Claims, "take", slow)
        async with logpipeline.open_reader("billing", **options) as reader:
            assert not await reader.caught_up()
            may_take.set()
            again = [batch async for batch in reader]

    assert [batch.id for batch in again] == [batch.id for batch in rest]
