"""A stream that is full of collected lines takes new ones again, and nothing unread goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import (
    STREAM_NOT_FOUND,
    STREAM_STORE_FAILED,
    ApiError,
    JetStream,
    time_ns_of,
)
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.observe import streams_below
from logpipeline.plan.trim import (
    Trimmed,
    keys_of,
    missed_by,
    readers_of,
    trim_forever,
    trim_once,
)
from logpipeline.records import EpochRecord, StreamPosition, assignment_key, epoch_key
from logpipeline.spec import LogPipeline, parse
from logpipeline.spec.table import Table
from logpipeline.tables.progress import TableProgress, missed_key_of, table_key
from waiting import WITHIN_S, eventually

CAPACITY = 20
SUBJECT = "logs.p0.web"


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of this test's server."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    yield JetStream(connection)
    await connection.close()


def pipeline(partitions: int = 0, **stream: Any) -> LogPipeline:
    """A pipeline whose one stream holds `CAPACITY` messages."""
    spec = {
        "subject": "logs",
        "partitions": partitions,
        "stream": {"name": "LOGS", "maxMsgs": CAPACITY, **stream},
    }
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "logs"},
            "spec": spec,
        }
    )


async def filled(js: JetStream, of: LogPipeline, messages: int = CAPACITY) -> None:
    """Make the pipeline's streams, and fill the one of its lines with so many *messages*."""
    assert (await apply(js, await plan_pipeline(js, of), allow_data_loss=False)).is_complete
    for number in range(messages):
        await js.publish(SUBJECT, b"line %d" % number)


async def commit(
    js: JetStream,
    sequence: int,
    *,
    group: str = "main",
    partition: int = 0,
    stream: str = "LOGS_0",
    snapshot_at: int | None = None,
    begun: int = 0,
) -> None:
    """Say that *group* has collected everything of *partition* up to *sequence*."""
    info = await js.stream_info(stream)
    assert info is not None
    message = (await js.call(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
    record = EpochRecord(
        epoch=1,
        owner="collector-0",
        incarnation="x",
        assignment=1,
        position=StreamPosition(info["created"], sequence, time_ns_of(message["time"])),
        snapshot=0 if begun else 1,
        snapshot_at=sequence if snapshot_at is None else snapshot_at,
        begun=begun,
    )
    await Bucket(js, "LOGS_state").put(epoch_key(group, partition), record.encode())


async def first_sequence(js: JetStream, stream: str = "LOGS_0") -> int:
    """The oldest message that is left."""
    info = await js.stream_info(stream)
    assert info is not None
    return int(info["state"]["first_seq"])


async def test_a_full_stream_of_collected_lines_takes_new_ones_again(js: JetStream) -> None:
    """What the collectors have done with makes room, and the committed message stays."""
    await filled(js, pipeline())
    with pytest.raises(ApiError) as refusal:
        await js.publish(SUBJECT, b"one too many")
    await commit(js, 5)

    trimmed = await trim_once(js, pipeline())

    assert refusal.value.err_code == STREAM_STORE_FAILED
    assert trimmed == [
        Trimmed(stream="LOGS_0", fill=1.0, below=5, messages=4, held_by="group main")
    ]
    assert await js.message("LOGS_0", 5) is not None
    await js.publish(SUBJECT, b"one more")


async def test_no_more_is_trimmed_than_the_level_asks_for(js: JetStream) -> None:
    """Collected lines stay for re-reading while there is room, the newest of them."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)

    await trim_once(js, pipeline())

    assert await first_sequence(js) == 13
    assert await trim_once(js, pipeline()) == []


async def test_the_slowest_group_decides(js: JetStream) -> None:
    """A redundant group that is behind, or has not even begun, keeps what it has yet to read."""
    await filled(js, pipeline())
    await commit(js, 15)
    await commit(js, 4, group="other-cluster")
    await trim_once(js, pipeline())
    first = await first_sequence(js)
    await Bucket(js, "LOGS_state").put(assignment_key("new-cluster"), b"{}")
    await commit(js, 10, group="other-cluster")

    trimmed = await trim_once(js, pipeline())

    assert first == 4
    assert [each.held_by for each in trimmed] == ["group new-cluster"]
    assert await first_sequence(js) == 4


@pytest.mark.parametrize("at_assignment", [False, True], ids=["broken", "none"])
async def test_a_group_without_a_record_keeps_all(js: JetStream, *, at_assignment: bool) -> None:
    """It was only assigned yet; or what stands there cannot be read."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)
    key = assignment_key("other") if at_assignment else epoch_key("other", 0)
    await Bucket(js, "LOGS_state").put(key, b"{}")

    trimmed = await trim_once(js, pipeline())

    assert [(each.held_by, each.messages) for each in trimmed] == [("group other", 0)]
    assert await first_sequence(js) == 1


async def test_a_stream_at_its_level_is_left_alone(js: JetStream) -> None:
    """It is not above it."""
    half = pipeline(trimAbove=50)
    await filled(js, half, CAPACITY // 2)
    await commit(js, CAPACITY // 2)

    assert await trim_once(js, half) == []


@pytest.mark.parametrize(("partitions", "first"), [(1, 13), (2, 4)])
async def test_in_one_stream_the_slowest_partition_decides(
    js: JetStream, partitions: int, first: int
) -> None:
    """Each has a record of its own; one that does not exist needs none."""
    of = pipeline(partitions, layout="single")
    await filled(js, of)
    await commit(js, CAPACITY, stream="LOGS")
    if partitions > 1:
        await commit(js, 4, stream="LOGS", partition=1)

    await trim_once(js, of)

    assert await first_sequence(js, "LOGS") == first


async def test_a_record_of_a_message_that_is_gone_frees_nothing(js: JetStream) -> None:
    """Its time cannot be compared any more. Where the stream itself is gone, that is an error."""
    await filled(js, pipeline())
    await commit(js, 5)
    await js.message_delete("LOGS_0", 5)
    trimmed = await trim_once(js, pipeline())
    (found,) = await streams_below(js, "logs.>")
    readers = await readers_of(js, Bucket(js, "LOGS_state"), pipeline())
    await js.call("STREAM.DELETE.LOGS_0")
    with pytest.raises(ApiError) as refusal:
        await readers.floors(js, found, [0])

    assert [(each.held_by, each.messages) for each in trimmed] == [("group main", 0)]
    assert refusal.value.err_code == STREAM_NOT_FOUND


async def test_a_bucket_that_is_not_there_has_no_keys(js: JetStream) -> None:
    """A pipeline that was never applied has no readers."""
    assert await keys_of(js, Bucket(js, "LOGS_state")) == set()


async def test_what_a_group_left_out_at_its_beginning_is_trimmed(js: JetStream) -> None:
    """Before its first commit, and no more than that."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)
    await commit(js, 8, group="late", snapshot_at=0, begun=8)

    trimmed = await trim_once(js, pipeline())

    assert [each.held_by for each in trimmed] == ["group late"]
    assert await first_sequence(js) == 8


async def test_a_durable_keeps_what_it_has_not_acknowledged(js: JetStream) -> None:
    """An extra consumer that reads slowly loses nothing; one that is through holds nothing."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)
    config = {"name": "audit", "durable_name": "audit", "ack_policy": "explicit"}
    await js.consumer_create("LOGS_0", config, action="create")

    held = await trim_once(js, pipeline())
    await js.consumer_delete("LOGS_0", "audit")
    await trim_once(js, pipeline())

    assert [(each.held_by, each.messages) for each in held] == [("consumer audit", 0)]
    assert await first_sequence(js) == 13


async def test_floors_of_other_readers_hold_as_well(js: JetStream) -> None:
    """A reader without a record in the bucket, such as a table's writer, gives its own floor."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)

    trimmed = await trim_once(js, pipeline(), floors={"LOGS_0": {"table": 2}})

    assert [each.held_by for each in trimmed] == ["table"]
    assert await first_sequence(js) == 3


async def test_what_a_hand_over_needs_is_kept(js: JetStream) -> None:
    """From the last snapshot on, a successor with another folder reads the headers."""
    await filled(js, pipeline())
    await commit(js, 10, snapshot_at=3)

    await trim_once(js, pipeline())

    assert await first_sequence(js) == 4


async def test_a_stream_that_was_made_anew_is_not_trimmed(js: JetStream) -> None:
    """A position of the former stream says nothing of this one, though the sequence fits."""
    await filled(js, pipeline())
    await commit(js, 10)
    await js.call("STREAM.DELETE.LOGS_0")
    await filled(js, pipeline())

    trimmed = await trim_once(js, pipeline())

    assert [each.messages for each in trimmed] == [0]


async def test_what_must_not_be_trimmed_is_left_alone(js: JetStream) -> None:
    """With ``trim: never``, and in a stream that is not ours, nothing is purged."""
    await filled(js, pipeline())
    await commit(js, CAPACITY)

    never = await trim_once(js, pipeline(trim="never"))
    info = await js.stream_info("LOGS_0")
    assert info is not None
    await js.call("STREAM.UPDATE.LOGS_0", {**info["config"], "metadata": {}})
    strange = await trim_once(js, pipeline())

    assert (never, strange) == ([], [])
    assert await first_sequence(js) == 1


async def test_trimming_goes_on_by_itself(
    js: JetStream, nats_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop frees a stream that fills later, also after the server was away, which is said;
    the same problem once.
    """

    def problems() -> list[str]:
        name = "streams could not be trimmed"
        return [vars(each)["reason"] for each in caplog.records if each.getMessage() == name]

    await filled(js, pipeline())
    trimming = asyncio.create_task(trim_forever(js, pipeline, interval_s=0.05))
    try:
        await nats_server.stop()
        await eventually(problems)
        await nats_server.start()
        await js.connection.wait_connected()
        await commit(js, CAPACITY)

        async def is_trimmed() -> bool:
            return await first_sequence(js) == 13

        trimmed: bool = await eventually(is_trimmed)
        assert trimmed
        assert all(one != other for one, other in pairwise(problems()))
    finally:
        trimming.cancel()


async def test_a_table_keeps_what_it_has_not_read(js: JetStream) -> None:
    """From the moment it is wanted, and another pipeline's as well, for whoever chose so; one that
    is no longer wanted keeps nothing.
    """
    await filled(js, pipeline())
    await commit(js, CAPACITY)
    wanted = with_table(skipTablesAbove=100)
    not_begun = await trim_once(js, wanted)
    await collected(js, table_key("default", wanted.name), 3)
    await collected(js, table_key("audit", "second"), 6)
    begun = await trim_once(js, wanted)
    first = await first_sequence(js)
    await collected(js, table_key("default", wanted.name), 1)
    await trim_once(js, pipeline())

    held = [each.held_by for each in (*not_begun, *begun)]
    assert held == [f"table default/{wanted.name}"] * 2
    assert first == 3
    assert await first_sequence(js) == 6


def with_table(**stream: Any) -> LogPipeline:
    """A pipeline as above that keeps a table."""
    of = pipeline(**stream)
    return replace(of, spec=replace(of.spec, table=Table(enabled=True)))


async def test_a_table_that_does_not_move_never_stops_the_files(js: JetStream) -> None:
    """Whatever keeps it from its work, also before it ever began: lines are taken for ever, and
    what the newest of them push out is written down for it.
    """
    of, key = with_table(), missed_key_of(table_key("default", "logs"))
    await filled(js, of)
    for number in range(3 * CAPACITY):
        info = await js.stream_info("LOGS_0")
        assert info is not None
        await commit(js, int(info["state"]["last_seq"]))
        await trim_once(js, of)
        await js.publish(SUBJECT, b"line %d" % (CAPACITY + number))

    missed = await missed_by(Bucket(js, "LOGS_state"), key)
    (gone,) = missed.streams["LOGS_0"]
    first = await first_sequence(js)
    assert (gone.first, gone.last, missed.messages) == (1, first - 1, first - 1)
    # No more than that: four fifths of the stream stay for it.
    assert 4 * CAPACITY - first >= 0.75 * CAPACITY


async def test_what_a_table_has_read_is_not_missed(js: JetStream) -> None:
    """Only what is behind its position is; and one that follows misses nothing."""
    of, key = with_table(), missed_key_of(table_key("default", "logs"))
    await filled(js, of)
    await commit(js, CAPACITY)
    await collected(js, table_key("default", "logs"), 2)
    trimmed = await trim_once(js, of)
    behind = await missed_by(Bucket(js, "LOGS_state"), key)
    await collected(js, table_key("default", "logs"), 15)
    await trim_once(js, of)

    assert [each.missed_by for each in trimmed] == [("table default/logs",)]
    assert [(gone.first, gone.last) for gone in behind.streams["LOGS_0"]] == [(3, 4)]
    assert await missed_by(Bucket(js, "LOGS_state"), key) == behind
    assert await first_sequence(js) == 13


async def collected(js: JetStream, key: str, sequence: int) -> None:
    """Tell that a table has everything up to *sequence*."""
    info, message = await js.stream_info("LOGS_0"), await js.message("LOGS_0", sequence)
    assert info is not None
    time_ns = message.time_ns if message else 0
    progress = TableProgress(
        path="/table", commit=1, rows=sequence, at_ns=1,
        streams={"LOGS_0": StreamPosition(info["created"], sequence, time_ns)},
    )  # fmt: skip
    await Bucket(js, "LOGS_state").put(key, progress.encode())
