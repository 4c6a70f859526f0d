"""A task looks at the stream before and after it reads: what is gone is told, and what another life
of the stream holds is not taken for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from logpipeline.nats.jetstream import rfc3339_of
from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import EARLIEST
from logpipeline_spark.source.options import SourceOptions, parse
from logpipeline_spark.source.ranges import RangeTask, read_task
from tables.streams import Streams, running_streams

SUBJECT = "logs.p0.node-b"


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone, with ten messages in LOGS_0."""
    with running_streams(tmp_path / "nats") as streams:
        for number in range(1, 11):
            streams.publish(SUBJECT, b"%d" % number * 1000)
        yield streams


def options_of(streams: Streams, **changes: str) -> SourceOptions:
    """Return options that read LOGS_0."""
    return parse(streams.options(stream="LOGS_0,", **changes))


def options_by_pattern(streams: Streams, **changes: str) -> dict[str, str]:
    """Return options that read what is called LOGS_0, if there is such a stream."""
    selected = {"servers": streams.server.url, "subscribePattern": "LOGS_0"}
    # Far longer than a test may take: no wait ends it.
    return {**selected, "failOnDataLoss": "false", "patienceSeconds": "600", **changes}


def planned(options: SourceOptions) -> RangeTask:
    """Return the one task that reads all that is there."""
    with Client(options) as client:
        seen = planning.look(client, options)
        begin = planning.start(client, options, EARLIEST, seen)
        end = planning.ends(client, begin, seen, {"LOGS_0": seen["LOGS_0"].last}, None)
    (task,) = planning.tasks(options, end, 1)
    return task


def sequences(options: SourceOptions, task: RangeTask) -> list[int]:
    """Return what *task* reads."""
    return [message.sequence for part in read_task(options, task) for message in part]


def test_deleted_messages_are_no_loss(streams: Streams) -> None:
    """Somebody took them out on purpose; also the last one, whose time nobody knows then."""
    for sequence in (5, 10):
        streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": sequence})
    options = options_of(streams)

    assert sequences(options, planned(options)) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_times_matter_only_where_a_stream_went_back(streams: Streams) -> None:
    """A new leader's clock may be behind: while the stream is the one that it was, all is read."""
    options = options_of(streams)
    task = planned(options)
    streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": 10})
    behind = replace(task, end=replace(task.end, time_ns=1))

    assert sequences(options, behind) == list(range(1, 10))


def test_what_is_purged_before_a_task_reads_is_told(streams: Streams) -> None:
    """Or left out, where that is allowed."""
    options = options_of(streams)
    task = planned(options)
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 4})

    with pytest.raises(
        Refused, match="LOGS_0 begins at 4, and the messages from 1 on were to be read"
    ):
        next(read_task(options, task))
    assert sequences(options_of(streams, failOnDataLoss="false"), task) == list(range(4, 11))


def test_what_is_purged_while_a_task_reads_is_told(streams: Streams) -> None:
    """If the task had not come there; what lies behind it may go."""
    options = options_of(streams)
    task = planned(options)
    lists = read_task(options, task, chunk_bytes_max=2000)
    assert [message.sequence for message in next(lists)] == [1, 2]
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 3})
    assert [message.sequence for message in next(lists)] == [3, 4]
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 8})

    with pytest.raises(Refused, match="begins at 8, and the messages from 5 on were to be read"):
        list(lists)


def test_where_loss_is_allowed_a_task_tells_what_was_lost(streams: Streams) -> None:
    """What a purge took before the task came to it, and nothing else."""
    options = options_of(streams, failOnDataLoss="false")
    task, lost = planned(options), list[tuple[int, int]]()
    lists = read_task(options, task, lost=lost, chunk_bytes_max=2000)
    read = [message.sequence for message in next(lists)]
    streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": 9})
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 6})
    read += [message.sequence for part in lists for message in part]

    assert read == [1, 2, 6, 7, 8, 10]
    assert lost == [(3, 5)]


def test_of_a_range_that_is_gone_all_is_told_as_lost(streams: Streams) -> None:
    """Also to its very end."""
    options, lost = options_of(streams, failOnDataLoss="false"), list[tuple[int, int]]()
    task = planned(options)
    streams.call("STREAM.PURGE.LOGS_0")

    assert list(read_task(options, task, lost=lost)) == []
    assert lost == [(1, 10)]


def test_a_purge_behind_a_task_is_no_loss(streams: Streams) -> None:
    """Trimming follows what was read."""
    options = options_of(streams)
    lists = read_task(options, planned(options), chunk_bytes_max=2000)
    read = [message.sequence for message in next(lists)]
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 3})

    read += [message.sequence for part in lists for message in part]
    assert read == list(range(1, 11))


def test_a_stream_that_is_gone_is_lost_where_its_query_goes_on_without_it(
    streams: Streams,
) -> None:
    """A repeated batch would name it for ever. Before its task begins, or after some messages."""
    options = parse(options_by_pattern(streams))
    task, lost = planned(options), list[tuple[int, int]]()
    lists = read_task(options, task, lost=lost, chunk_bytes_max=2000)
    read = [message.sequence for message in next(lists)]
    streams.call("STREAM.DELETE.LOGS_0")

    read += [message.sequence for part in lists for message in part]
    assert (read, lost) == ([1, 2], [(3, 10)])
    assert list(read_task(options, task, lost=lost)) == []
    assert lost == [(3, 10), (1, 10)]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_stream_that_is_gone_ends_what_needs_it(streams: Streams, is_begun: bool) -> None:
    """A query that may lose nothing, and one that names it: so does a table's job, and the stream
    may come back from a backup.
    """
    for number, options in enumerate(
        (
            parse(options_by_pattern(streams, failOnDataLoss="true")),
            options_of(streams, failOnDataLoss="false"),
        )
    ):
        if number:
            streams.create("LOGS_0")
            for size in range(10):
                streams.publish(SUBJECT, b"%d" % size * 1000)
        lists = read_task(options, planned(options), chunk_bytes_max=2000)
        if is_begun:
            next(lists)
        streams.call("STREAM.DELETE.LOGS_0")
        with pytest.raises(Refused, match="stream LOGS_0 does not exist at nats://"):
            list(lists)


def test_a_stream_made_anew_is_not_taken_for_the_old_one(streams: Streams) -> None:
    """Its messages belong to a later batch, whatever their sequences are."""
    options = options_of(streams)
    task = planned(options)
    streams.call("STREAM.DELETE.LOGS_0")
    streams.create("LOGS_0")
    for _ in range(12):
        streams.publish(SUBJECT, b"new")

    with pytest.raises(Refused, match="LOGS_0 was created again"):
        sequences(options, task)
    assert sequences(options_of(streams, failOnDataLoss="false"), task) == []


def test_a_roll_back_leaves_what_survived_to_its_batch(streams: Streams, tmp_path: Path) -> None:
    """Messages that came after it have sequences of the batch, and belong to the next one."""
    streams.stop()
    shutil.copytree(streams.server.store, tmp_path / "then")
    streams.start()
    for _ in range(4):
        streams.publish(SUBJECT, b"lost by the server")
    options = options_of(streams)
    task = planned(options)
    assert (task.first, task.last) == (1, 14)
    streams.stop()
    shutil.rmtree(streams.server.store)
    shutil.copytree(tmp_path / "then", streams.server.store)
    streams.start()
    for _ in range(6):
        streams.publish(SUBJECT, b"new")

    with pytest.raises(Refused, match="LOGS_0 was rolled back"):
        sequences(options, task)
    assert sequences(options_of(streams, failOnDataLoss="false"), task) == list(range(1, 11))


def test_a_batch_goes_on_behind_the_last_message_that_both_have(
    streams: Streams, tmp_path: Path
) -> None:
    """After a roll-back each message is in one batch: what survived in the old one, the new ones
    in the next, under another incarnation.
    """
    streams.stop()
    shutil.copytree(streams.server.store, tmp_path / "then")
    streams.start()
    streams.publish(SUBJECT, b"lost by the server")
    options = options_of(streams, failOnDataLoss="false")
    old = planned(options).end
    streams.stop()
    shutil.rmtree(streams.server.store)
    shutil.copytree(tmp_path / "then", streams.server.store)
    streams.start()
    last = [streams.publish(SUBJECT, b"new") for _ in range(3)][-1]

    with Client(options) as client:
        seen = planning.states(client, options)
        begin = planning.begins(client, options, {"LOGS_0": old}, seen)
        end = planning.ends(client, begin, seen, {"LOGS_0": last}, None)
    (task,) = planning.tasks(options, end, 1)
    assert (begin["LOGS_0"].sequence, begin["LOGS_0"].rollbacks) == (10, 1)
    assert sequences(options, task) == [11, 12, 13]
    assert task.end.incarnation == old.incarnation.replace("r0", "r1")


def test_a_batch_ends_at_a_message_whose_time_is_known(streams: Streams) -> None:
    """Where the one it would end at was deleted: else nobody could tell a roll-back later."""
    for sequence in (3, 4):
        streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": sequence})
    options = options_of(streams)
    with Client(options) as client:
        seen = planning.states(client, options)
        begin = planning.start(client, options, EARLIEST, seen)
        end = planning.ends(client, begin, seen, {"LOGS_0": 10}, 3 * seen["LOGS_0"].message_bytes)
        five = client.time_at("LOGS_0", seen["LOGS_0"], 5)

    assert (end["LOGS_0"].sequence, end["LOGS_0"].time_ns) == (5, five)
    assert replace(end["LOGS_0"], sequence=4).after == 0


def test_the_leader_is_asked_as_any_replica_is(streams: Streams) -> None:
    """For the first message from a sequence or a time on, behind deleted ones, and behind all."""
    for sequence in (3, 4):
        streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": sequence})
    with Client(options_of(streams)) as client:
        state = client.state("LOGS_0")
        two, ten = (client.time_at("LOGS_0", state, sequence) for sequence in (2, 10))
        assert two is not None
        assert ten is not None
        times = {"start_time": rfc3339_of(two + 1)}, {"start_time": rfc3339_of(ten + 1)}
        queries = [query | {"next_by_subj": ">"} for query in ({"seq": 3}, {"seq": 11}, *times)]
        found = [client.first_from("LOGS_0", query) for query in queries]
        of_leader = [
            client.ask(partial(client._first_of_leader, "LOGS_0", query)) for query in queries
        ]

    assert of_leader == found
    assert [each and each.sequence for each in found] == [5, None, 5, None]
