"""Readers that programs open: what ends them, what they say of themselves, and without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logpipeline
from components.consuming import HOSTS, PARTITIONS, Streams, in_order, streams_on
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.ownership import HeldRecord
from logpipeline.nats.connection import NotSent
from logpipeline.spec import load
from logpipeline.spec.table import TimeRule
from waiting import eventually

MESSAGES = 6
# A net for hangs, wide enough for a machine that runs other tests beside.
READ_S = 60


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with messages."""
    await streams.write(MESSAGES)
    return streams


def texts(batches: list[logpipeline.Batch]) -> list[str]:
    """The lines of *batches*."""
    return [line.text.decode() for batch in batches for line in batch.lines]


async def test_a_closed_reader_holds_nothing_though_its_iterator_is_kept(
    streams: Streams, where: dict[str, Any]
) -> None:
    """The next one has the partitions at once; the kept one says that it is closed."""
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("billing", **where) as reader:
            batches = aiter(reader)
            first = await anext(batches)
            first.processed()
        async with logpipeline.open_reader("billing", **where, until_caught_up=True) as another:
            rest = [batch async for batch in another]
        for _ in range(2):
            with pytest.raises(logpipeline.ConsumeError, match="the reader is closed"):
                await anext(batches)

    assert sorted(texts([first, *rest])) == sorted(streams.written)


async def test_a_line_has_the_event_time_that_the_resources_table_has(streams: Streams) -> None:
    """By its rules and in its zone, unless the program gives others."""
    made, nats = load(streams.file), streams.server.url
    rules = replace(made.spec.table, time=(TimeRule(format="iso8601"),), zone="+01:00")
    made = replace(made, spec=replace(made.spec, table=rules))
    await streams.store(HOSTS[0], 10_000, b"2020-11-20 09:00:00 hot\n")
    found = []
    async with asyncio.timeout(READ_S):
        for name, options in enumerate(({}, {"zone": "UTC"}, {"event_time": "klog"})):
            given: Any = {"pipeline": made, "nats": nats, "until_caught_up": True, **options}
            async for batch in logpipeline.consume(f"reader-{name}", **given):
                found += [line.event_time for line in batch.lines if b"hot" in line.text]

    assert found == [
        datetime(2020, 11, 20, 8, tzinfo=UTC), datetime(2020, 11, 20, 9, tzinfo=UTC), None,
    ]  # fmt: skip


async def test_a_kept_generator_keeps_the_partitions(where: dict[str, Any]) -> None:
    """Which is why there is a context as well."""
    async with asyncio.timeout(READ_S):
        batches = logpipeline.consume("billing", **where)
        await anext(batches)
        with pytest.raises(logpipeline.ReaderBusy, match="is being read by"):
            await anext(logpipeline.consume("billing", **where))
        await batches.aclose()


@pytest.mark.parametrize("members", [("a", "b", "c"), ("same", "same", "same")])
async def test_of_readers_that_begin_at_once_one_reads(
    streams: Streams, where: dict[str, Any], members: tuple[str, ...]
) -> None:
    """Without a group; each looks for others before any of them can be seen."""

    refused: list[logpipeline.ReaderBusy] = []

    async def read(member: str) -> list[logpipeline.Batch]:
        options: Any = {**where, "member": member, "count": PARTITIONS * MESSAGES}
        batches = []
        try:
            async for batch in logpipeline.consume("billing", **options):
                batches.append(batch)
                # If it left before the others try, one of them would be let in.
                await eventually(lambda: len(refused) == len(members) - 1, within_s=READ_S)
        except logpipeline.ReaderBusy as error:
            refused.append(error)
        return batches

    async with asyncio.timeout(READ_S):
        found = await asyncio.gather(*map(read, members))

    assert all("is being read by" in str(one) for one in refused)
    assert sorted(map(len, found))[:-1] == [0] * (len(members) - 1)
    assert sorted(text for one in found for text in texts(one)) == sorted(streams.written)


async def test_a_reader_ends_when_it_is_asked_to(streams: Streams, where: dict[str, Any]) -> None:
    """After so many messages, then when none is left; the last batch counts as processed."""
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("billing", **where, count=4) as reader:
            four = [batch async for batch in reader]
            assert await reader.next() is None
        batches = logpipeline.consume("billing", **where, until_caught_up=True)
        rest = [batch async for batch in batches]

    assert len(texts(four)) == 4
    assert in_order(texts([*four, *rest]))
    assert sorted(texts([*four, *rest])) == sorted(streams.written)


@pytest.mark.parametrize("is_in_hand", [True, False])
async def test_a_reader_goes_on_after_a_call_that_was_given_up(
    streams: Streams, where: dict[str, Any], is_in_hand: bool
) -> None:
    """A time limit around it ended while the server was away: while the batch before is settled,
    or the next one begun.
    """
    found: list[logpipeline.Batch] = []
    async with (
        asyncio.timeout(READ_S),
        logpipeline.open_reader("billing", **where, state="kv", until_caught_up=True) as reader,
    ):
        # All partitions have something ready.
        await eventually(lambda: len(reader.assignment) == PARTITIONS)
        if is_in_hand:
            found.append(await anext(reader))
        streams.server.suspend()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.next()
        streams.server.resume()
        found += [batch async for batch in reader]

    assert in_order(texts(found))
    assert sorted(texts(found)) == sorted(streams.written)


async def test_a_reader_acknowledges_before_its_consumer_stops(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Which delivers no more than may wait for that, whatever *ack* says."""
    consumer = {"name": "audit", "maxAckPending": 4}
    async with (
        asyncio.timeout(READ_S),
        streams_on(nats_server, tmp_path / "pipeline", consumers=[consumer]) as streams,
    ):
        await streams.write(MESSAGES)
        options: Any = {"ack": "every=100", "count": PARTITIONS * MESSAGES}
        batches = logpipeline.consume(
            "audit", pipeline=streams.file, nats=nats_server.url, **options
        )
        found = [batch async for batch in batches]

    assert sorted(texts(found)) == sorted(streams.written)


async def test_a_batch_that_is_being_settled_when_its_reader_ends_is_settled(
    streams: Streams, where: dict[str, Any]
) -> None:
    """The caller did not wait for it, and the reader does, for a while."""
    options: Any = {**where, "state": "kv", "partitions": "1"}
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("billing", **options) as reader:
            seen = [(await anext(reader)).first]
            streams.server.suspend()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.settle()
            asyncio.get_running_loop().call_later(0.5, streams.server.resume)
        batches = logpipeline.consume("billing", **options, until_caught_up=True)
        seen += [batch.first async for batch in batches]

    assert seen == list(range(1, MESSAGES + 1))


async def test_a_member_waits_for_a_server_that_is_away(
    streams: Streams, where: dict[str, Any]
) -> None:
    """Though it asks, before it hands out what it has, whether the partition still is its own."""
    found: list[logpipeline.Batch] = []
    options: Any = {"group": True, "ack": "all", "batch": 2}
    async with (
        asyncio.timeout(READ_S),
        logpipeline.open_reader("billing", **where, **options) as reader,
    ):
        found.append(await anext(reader))
        await eventually(lambda: reader._ready.qsize() == PARTITIONS - 1)
        await streams.server.stop()
        coming = asyncio.create_task(reader.next())
        await eventually(lambda: coming.done() or not is_connected(reader))
        await streams.server.start()
        while batch := await coming:
            found.append(batch)
            if len(set(texts(found))) == len(streams.written):
                break
            coming = asyncio.create_task(reader.next())

    assert set(texts(found)) == set(streams.written)


def is_connected(reader: logpipeline.Reader) -> bool:
    """Whether it has a connection to its server."""
    return reader._reading.js.connection.is_connected


async def test_a_reader_says_what_is_left(where: dict[str, Any]) -> None:
    """Of each partition that it may read; what is in hand is not done yet."""
    left = {0: MESSAGES, 2: MESSAGES}
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("billing", **where, partitions="0,2") as reader:
            batch = await anext(reader)
            # Until a partition's consumer is made, its lag is not known.
            await eventually(lambda: has_lag(reader, left))
            assert reader.assignment == (0, 2)
            await reader.settle()
            left[batch.partition] -= 1
            assert await has_lag(reader, left)
            lags = await reader.lag()

    assert all(lag.bytes > 0 and lag.age_s > 0 for lag in lags.values())


async def has_lag(reader: logpipeline.Reader, messages: dict[int, int]) -> bool:
    """Whether so many messages are left of each partition."""
    return {number: lag.messages for number, lag in (await reader.lag()).items()} == messages


async def test_a_reader_counts_what_became_of_messages(where: dict[str, Any]) -> None:
    """Tried again, stored as a dead letter, processed."""
    options: Any = {"partitions": "1", "tries": 2, "on_error": "dead-letter"}
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("billing", **where, **options) as reader:
            seen = []
            for _ in range(2):
                batch = await anext(reader)
                seen.append(batch.id)
                batch.retry("not now")
            seen += [(await anext(reader)).id for _ in range(2)]
            counts = reader.counts

    assert seen[0] == seen[1]
    assert len({*seen}) == 3
    assert (counts.retried, counts.dead_letters, counts.processed) == (1, 1, 1)


@pytest.mark.parametrize("state", ["kv", None])
async def test_streams_are_read_without_a_resource(streams: Streams, state: str | None) -> None:
    """By the name of the streams; beside readers that have the resource, and as one of them."""
    async with asyncio.timeout(READ_S):
        options: Any = {"state": state, "count": 7, "nats": streams.server.url}
        with_resource = logpipeline.consume("billing", pipeline=streams.file, **options)
        found = texts([batch async for batch in with_resource])
        options |= {"count": 0, "until_caught_up": True}
        found += texts([b async for b in logpipeline.consume("billing", stream="LOGS", **options)])

    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_streams_that_are_not_a_pipelines_are_refused(streams: Streams) -> None:
    """With what there is, and what to give."""
    nats = streams.server.url
    await streams.js.call("STREAM.CREATE.OTHER_0", {"name": "OTHER_0", "subjects": ["other.>"]})
    async with asyncio.timeout(READ_S):
        with pytest.raises(
            logpipeline.NoPipeline, match=r"stores other\.>, and a pipeline's would"
        ):
            await anext(logpipeline.consume("billing", stream="OTHER", nats=nats))
        with pytest.raises(
            logpipeline.NoPipeline, match=r"no streams LOG_0, .*there are: .*LOGS_0"
        ):
            await anext(logpipeline.consume("billing", stream="LOG", nats=nats))


async def test_a_partition_whose_release_failed_is_free_for_its_next_reader(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former one lives, and would otherwise seem to read it for ever."""
    try_change = HeldRecord.try_change

    async def fails_once(held: HeldRecord[Any], change: Callable[[Any], Any]) -> bool:
        monkeypatch.setattr(HeldRecord, "try_change", try_change)
        raise NotSent("not connected")

    options: Any = {**where, "group": True, "in_order": True}
    async with (
        asyncio.timeout(READ_S),
        logpipeline.open_reader("billing", **options, member="a") as first,
    ):
        await eventually(lambda: len(first.assignment) == PARTITIONS)
        monkeypatch.setattr(HeldRecord, "try_change", fails_once)
        async with logpipeline.open_reader("billing", **options, member="b") as second:
            await eventually(
                lambda: (
                    second.assignment
                    and sorted((*first.assignment, *second.assignment)) == list(range(PARTITIONS))
                )
            )
            assert HeldRecord.try_change is try_change


async def test_a_shared_lag_is_what_no_member_has_done(where: dict[str, Any]) -> None:
    """Any member may do any message, so it is counted by what is acknowledged."""
    async with asyncio.timeout(READ_S):
        async with logpipeline.open_reader("mailer", **where, group=True) as reader:
            assert len(reader.assignment) == PARTITIONS
            await anext(reader)
            await eventually(lambda: has_lag(reader, dict.fromkeys(range(PARTITIONS), MESSAGES)))


async def test_a_script_reads_without_asyncio(streams: Streams, where: dict[str, Any]) -> None:
    """Here in a thread without a loop, and the reader in its own."""

    def read() -> list[str]:
        with logpipeline.open_blocking_reader("script", **where, until_caught_up=True) as reader:
            found = texts(list(reader))
            assert reader.caught_up()
            assert reader.assignment == tuple(range(PARTITIONS))
            assert reader.counts.processed == len(found)
            assert {each.messages for each in reader.lag().values()} == {0}
        return found

    async with asyncio.timeout(READ_S):
        found = await asyncio.to_thread(read)

    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_a_notebook_reads_though_a_loop_runs(streams: Streams, where: dict[str, Any]) -> None:
    """Its cells are run in a loop, and the names of one are kept for the next; one that fails
    gives the partitions back as well.
    """
    kept: list[Iterator[logpipeline.Batch]] = []
    done: list[logpipeline.Batch] = []

    def cell() -> None:
        with logpipeline.open_blocking_reader("notebook", **where) as reader:
            kept.append(iter(reader))
            done.append(next(reader))
            done[0].processed()
            raise ValueError("a mistake in the cell")

    with pytest.raises(ValueError, match="a mistake in the cell"):
        cell()
    with logpipeline.open_blocking_reader("notebook", **where, until_caught_up=True) as reader:
        rest = list(reader)

    assert sorted(texts([*done, *rest])) == sorted(streams.written)
    with pytest.raises(logpipeline.ConsumeError, match="the reader is closed"):
        next(kept[0])


@pytest.mark.parametrize("settles", [False, True])
async def test_an_interrupt_costs_a_script_no_batch(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch, settles: bool
) -> None:
    """A batch that came just with it was not returned: the next call returns it, and none before
    acknowledges it.
    """
    real = Future.result

    def interrupted(self: Future[Any], timeout: float | None = None) -> Any:
        real(self, timeout)
        monkeypatch.setattr(Future, "result", real)
        raise KeyboardInterrupt

    def read() -> list[int]:
        options: Any = {"partitions": "1", "until_caught_up": True}
        with logpipeline.open_blocking_reader("script", **where, **options) as reader:
            seen = [next(reader).first]
            monkeypatch.setattr(Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(reader)
            if settles:
                reader.settle()
                assert reader.counts.processed == 1
            return [*seen, *(batch.first for batch in reader)]

    async with asyncio.timeout(READ_S):
        seen = await asyncio.to_thread(read)

    assert seen == list(range(1, MESSAGES + 1))


async def test_a_script_goes_on_after_an_interrupt_that_came_before_a_batch(
    streams: Streams, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that waited is over, and the next one waits anew."""
    real = Future.result

    def interrupted(self: Future[Any], timeout: float | None = None) -> Any:
        monkeypatch.setattr(Future, "result", real)
        raise KeyboardInterrupt

    options: Any = {"partitions": "1", "deliver": "new"}
    async with asyncio.timeout(READ_S):
        with logpipeline.open_blocking_reader("script", **where, **options) as reader:
            monkeypatch.setattr(Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                reader.next()
            await eventually(reader.lag)
            await streams.send(HOSTS[1])
            batch = await asyncio.to_thread(reader.next)

    assert batch is not None
    assert batch.first == MESSAGES + 1


async def test_a_reader_that_cannot_begin_says_why_where_it_is_opened(
    where: dict[str, Any],
) -> None:
    """In the thread of the program, and no thread is left."""
    with (
        pytest.raises(logpipeline.BadOption, match="there is no partition 7"),
        logpipeline.open_blocking_reader("script", **where, partitions="7"),
    ):
        pass
