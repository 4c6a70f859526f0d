"""Batches bring what the streams hold into the table: once, whatever was sent again or lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from components.raw_nats import no_text, publish
from logpipeline.spec.table import LineField, ParseRule
from logpipeline.wire import MESSAGE_ID, encode_headers
from logpipeline_cli.tables import duck
from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import Late
from logpipeline_spark.job import batch as batch_module
from logpipeline_spark.job import task
from logpipeline_spark.job.batch import Batches, RunTasks
from logpipeline_spark.job.rebuild import Rebuild
from logpipeline_spark.job.task import Done, Task, Work
from logpipeline_spark.lines.schema import LINES, NONE, Columns, encoded_schema_of
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import Place
from logpipeline_spark.source.options import parse
from logpipeline_spark.table.counts import MINUTES
from logpipeline_spark.table.files import ROLLUP_MINUTE
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.verify import verify
from tables.erased import SLEPT_HOURS, Evening, age
from tables.made import logs, opened, upkeep
from tables.messages import batch_for
from tables.streams import STREAMS, Streams, running_streams


def here(work: Work, tasks: Sequence[Task]) -> list[Done]:
    """Do tasks in this process, the last one first: their order must not matter."""
    return [task.run(work, each) for each in reversed(tasks)]


class Keeper:
    """A table, and who keeps it; started again, it goes on."""

    def __init__(self, streams: Streams, folder: Path) -> None:
        self.streams = streams
        self.storage = LocalStorage(folder)
        self.options: dict[str, Any] = {"bytes_max": 1 << 30, "at_once": lambda: 3}
        self.columns = NONE

    def batches(self, run: RunTasks = here) -> Iterator[Batches]:
        """Open the table, and have batches of it."""
        options = parse(self.streams.options(failOnDataLoss="false"))
        table = opened(self.storage, schema=encoded_schema_of(self.columns))
        work = Work(
            options=options,
            storage=self.storage,
            writer=table.writer,
            has_rollups=True,
            columns=self.columns,
        )
        with Client(options) as client:
            made = Batches(
                client=client, table=table, work=work, run=run, streams=STREAMS, **self.options
            )
            made.load()
            yield made
        table.close()

    def take(self) -> int:
        """Bring everything that waits into the table; return how many rows that were."""
        rows = 0
        for batches in self.batches():
            while (committed := batches.next()) is not None:
                rows += committed.rows
        return rows

    def lines(self) -> list[tuple[str, str]]:
        """The table's lines with their hosts, in no order."""
        found = tables(self.storage, files(logs(self.storage)), LINES)
        return sorted((row["host"], row["line"]) for table in found for row in table.to_pylist())


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server with two empty streams."""
    with running_streams(tmp_path / "nats") as made:
        yield made


@pytest.fixture
def keeper(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """An empty table of these streams; several tasks read them, however little they hold."""
    monkeypatch.setattr(planning, "TASK_BYTES_MIN", 1)
    return Keeper(streams, tmp_path / "table")


def send(streams: Streams, first: int, end: int) -> list[tuple[str, str]]:
    """Send numbered lines, one a message, for each host; return them as the table shows them."""
    for number in range(first, end):
        for host in ("node-a", "node-b"):
            streams.send(host, f"line {number}")
    return [(host, f"line {n}") for host in ("node-a", "node-b") for n in range(first, end)]


def test_what_streams_hold_comes_into_the_table_once(streams: Streams, keeper: Keeper) -> None:
    """In however many batches and tasks, and in however many starts."""
    expected = send(streams, 0, 20)
    first = keeper.take()
    again = keeper.take()
    expected += send(streams, 20, 30)
    keeper.options["bytes_max"] = 1
    keeper.take()

    assert (first, again) == (40, 0)
    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).problems == ()


def test_lines_that_were_sent_again_are_there_once(streams: Streams, keeper: Keeper) -> None:
    """In the same batch or a later one; of a longer message the new part is taken."""
    streams.send("node-a", "one", "two")
    streams._offsets["node-a"] = 0
    streams.send("node-a", "one", "two", "three", resend=True)
    keeper.take()
    streams._offsets["node-a"] = 0
    streams.send("node-a", "one", "two", "three", "four", resend=True)
    streams.send("node-a", "five", resend=True)
    keeper.take()

    wanted = ["one", "two", "three", "four", "five"]
    assert keeper.lines() == sorted(("node-a", line) for line in wanted)
    assert verify(keeper.storage, logs(keeper.storage)).problems == ()


def test_a_batch_that_slept_between_writing_and_committing_is_repeated(
    streams: Streams, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up takes what no version names for hours: a laptop's night lies in between."""
    expected = send(streams, 0, 10)

    def sleeps(work: Work, tasks: Sequence[Task]) -> list[Done]:
        done = here(work, tasks)
        age(keeper.storage, logs(keeper.storage), hours=SLEPT_HOURS)
        upkeep(keeper.storage).clean(datetime.now(UTC))
        return done

    with monkeypatch.context() as night:
        for module in (batch_module, task):
            night.setattr(module, "datetime", Evening)
        for batches in keeper.batches(run=sleeps):
            with pytest.raises(Late, match="clean-up removes them after 2 hours"):
                batches.next()
    keeper.take()

    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).problems == ()


def test_a_batch_whose_tasks_waited_for_executors_is_committed(
    streams: Streams, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are young, however long ago it was planned: it need not be repeated."""
    expected = send(streams, 0, 10)
    with monkeypatch.context() as evening:
        evening.setattr(batch_module, "datetime", Evening)
        for batches in keeper.batches():
            assert batches.next() is not None

    assert keeper.lines() == sorted(expected)


def test_bytes_that_are_no_text_become_rows_like_others(streams: Streams, keeper: Keeper) -> None:
    """Whatever is in subject and headers, each message has its rows, and none stops the job."""
    streams.send("node-b", "before")
    batch = batch_for(b"odd\n", format="plain", source="/other", generation="f" * 16)
    headers = encode_headers(batch, "")
    del headers[MESSAGE_ID]
    messages = no_text("logs.p0.node-b", headers, b"odd\n")
    asyncio.run(publish(streams.server.url, *messages))
    streams.send("node-b", "after")
    keeper.take()

    found = tables(keeper.storage, files(logs(keeper.storage)), LINES)
    lines = [str(line).strip() for table in found for line in table["line"]]
    assert sorted(lines) == sorted(["before", "after", *["odd"] * len(messages)])


def test_a_batch_that_failed_is_repeated_as_a_whole(streams: Streams, keeper: Keeper) -> None:
    """What its tasks had written is taken away or written again."""
    expected = send(streams, 0, 10)

    def dies(work: Work, tasks: Sequence[Task]) -> list[Done]:
        for each in tasks:
            task.run(work, each)
        raise RuntimeError("the driver died here")

    for batches in keeper.batches(dies):
        with pytest.raises(RuntimeError):
            batches.next()
    expected += send(streams, 10, 12)
    keeper.take()

    assert keeper.lines() == sorted(expected)


def make_anew(streams: Streams) -> None:
    """Delete all streams, and create them again."""
    for stream in STREAMS:
        streams.call(f"STREAM.DELETE.{stream}")
    streams.create()


def test_a_stream_that_was_made_anew_is_read_from_its_beginning(
    streams: Streams, keeper: Keeper
) -> None:
    """Its sequences are used again; lines of before stay, and new ones come once."""
    expected = send(streams, 0, 5)
    keeper.take()
    make_anew(streams)
    expected += send(streams, 5, 8)
    keeper.take()

    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).problems == ()


def test_new_lines_of_a_server_whose_clock_is_behind_are_read(
    streams: Streams, keeper: Keeper
) -> None:
    """The former server's clock was ahead, so the times of new messages say that they were read."""
    expected = send(streams, 0, 5)
    keeper.take()
    make_anew(streams)
    streams._offsets["node-a"] = 0
    streams.send("node-a", *(f"line {number}" for number in range(5)))
    expected += send(streams, 5, 8)
    for batches in keeper.batches():
        for state in batches.states.values():
            assert state.position is not None
            state.position = replace(state.position, time_ns=state.position.time_ns + 3600 * 10**9)
        assert batches.next() is not None
    expected += send(streams, 8, 9)
    keeper.take()

    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).problems == ()


def test_missing_bytes_are_those_of_all_sources_also_after_a_start(
    streams: Streams, keeper: Keeper
) -> None:
    """A hole that an earlier process found is still there, and may be filled."""
    found: list[int] = []
    for first, is_again in ((0, False), (100, False), (105, False), (5, True)):
        streams._offsets["node-a"] = first
        streams.send("node-a", "x" * (94 if is_again else 4), resend=is_again)
        for batches in keeper.batches():
            before = batches.missing_bytes
            committed = batches.next()
            assert committed is not None
            found += [before, committed.missing_bytes]

    assert found == [0, 0, 0, 95, 95, 95, 95, 0]


def test_what_was_purged_before_it_was_read_is_told(
    streams: Streams, keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading goes on behind it, and the table knows of the hole."""
    expected = send(streams, 0, 3)
    keeper.take()
    send(streams, 3, 6)
    for stream in STREAMS:
        streams.call(f"STREAM.PURGE.{stream}")
    expected += send(streams, 6, 9)
    keeper.take()

    assert keeper.lines() == sorted(expected)
    assert "messages were deleted before they were read" in caplog.text


def test_what_is_purged_before_the_first_range_is_named(streams: Streams, keeper: Keeper) -> None:
    """Of a stream that was made anew, and of one that a table was to read from a place on."""
    send(streams, 0, 3)
    keeper.options["begin"] = Place("latest")
    keeper.take()
    expected = send(streams, 3, 6)
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 6})
    expected.remove(("node-b", "line 3"))
    expected.remove(("node-b", "line 4"))
    keeper.take()
    streams.call("STREAM.DELETE.LOGS_1")
    streams.create("LOGS_1")
    expected += send(streams, 6, 9)
    streams.call("STREAM.PURGE.LOGS_1", {"seq": 3})
    expected.remove(("node-a", "line 6"))
    expected.remove(("node-a", "line 7"))
    keeper.take()

    report = verify(keeper.storage, logs(keeper.storage))
    assert keeper.lines() == sorted(expected)
    assert [(name, gone.first, gone.last) for name, gone in report.skipped] == [
        ("LOGS_0", 4, 5),
        ("LOGS_1", 1, 2),
    ]
    assert report.problems == ()


def test_what_a_stream_had_that_is_made_anew_while_tasks_read_is_named(
    streams: Streams, keeper: Keeper
) -> None:
    """The range counts as read, and what is gone of it as lost."""
    send(streams, 0, 3)

    def late(work: Work, tasks: Sequence[Task]) -> list[Done]:
        if tasks:
            streams.call("STREAM.DELETE.LOGS_0")
            streams.create("LOGS_0")
        return here(work, tasks)

    for batches in keeper.batches(late):
        committed = batches.next()
        assert committed is not None
        assert committed.lost == 3

    report = verify(keeper.storage, logs(keeper.storage))
    assert [(name, gone.first, gone.last) for name, gone in report.skipped] == [("LOGS_0", 1, 3)]


def test_what_is_purged_while_tasks_read_is_told_and_gone_on_without(
    streams: Streams, keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention that is faster than the tasks would else stop each batch, for ever."""
    expected = send(streams, 0, 3)
    keeper.take()
    send(streams, 3, 9)

    def late(work: Work, tasks: Sequence[Task]) -> list[Done]:
        if tasks:
            streams.call("STREAM.PURGE.LOGS_1", {"seq": 6})
            streams.call("STREAM.PURGE.LOGS_0")
        return here(work, tasks)

    for batches in keeper.batches(late):
        committed = batches.next()
        assert committed is not None
        assert committed.lost == 6 + 2
    expected += [("node-a", f"line {number}") for number in range(5, 9)] + send(streams, 9, 12)
    keeper.take()

    report = verify(keeper.storage, logs(keeper.storage))
    assert keeper.lines() == sorted(expected)
    assert [(name, gone.first, gone.last) for name, gone in report.skipped] == [
        ("LOGS_0", 4, 9),
        ("LOGS_1", 4, 5),
    ]
    assert report.problems == ()
    assert caplog.text.count("messages were deleted before they were read") == 2


def test_what_is_purged_before_a_resent_message_is_written_is_lost_and_not_known(
    streams: Streams, keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch reads a message that is sent again twice: first its range, then its lines."""
    streams.send("node-a", "one")
    keeper.take()
    streams.send("node-a", "two", resend=True)

    def late(work: Work, tasks: Sequence[Task]) -> list[Done]:
        if tasks[0].wanted is not None:
            streams.call("STREAM.PURGE.LOGS_1")
        return here(work, tasks)

    for batches in keeper.batches(late):
        committed = batches.next()
        assert committed is not None
        assert (committed.rows, committed.lost, committed.missing_bytes) == (0, 1, 0)
    report = verify(keeper.storage, logs(keeper.storage))
    streams._offsets["node-a"] = len("one\n")
    streams.send("node-a", "two", resend=True, attempt="2")
    keeper.take()

    assert keeper.lines() == [("node-a", "one"), ("node-a", "two")]
    assert [(name, gone.first, gone.last) for name, gone in report.skipped] == [("LOGS_1", 2, 2)]
    assert caplog.text.count("messages were deleted before they were read") == 1
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_a_copy_is_written_where_the_resent_message_before_it_is_purged(
    streams: Streams, keeper: Keeper
) -> None:
    """Each of them was to be written alone, since it has all that the others have; of one that has
    more the rest is written once.
    """
    sent = ((0, "one two"), (0, "one two"), (4, "two three"), (0, "one two"))
    for number, (start, lines) in enumerate(sent):
        streams._offsets["node-a"] = start
        streams.send("node-a", *lines.split(), resend=True, attempt=f"{number}")
    passes: list[list[int]] = []

    def late(work: Work, tasks: Sequence[Task]) -> list[Done]:
        if tasks[0].wanted is not None:
            if not passes:
                streams.call("STREAM.PURGE.LOGS_1", {"seq": 3})
            passes.append([each.sequence for each in tasks[0].wanted["LOGS_1"]])
        return here(work, tasks)

    for batches in keeper.batches(late):
        committed = batches.next()
        assert committed is not None
        assert (committed.rows, committed.lost) == (3, 2)

    assert passes == [[1, 3], [2], [4]]
    assert keeper.lines() == sorted(("node-a", line) for line in ("one", "two", "three"))
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_who_wants_to_be_asked_is_asked_before_anything_is_committed(
    streams: Streams, keeper: Keeper
) -> None:
    """Whether it was gone before the batch began, or when its tasks came."""
    send(streams, 0, 3)
    keeper.options["stops_on_loss"] = True

    def late(work: Work, tasks: Sequence[Task]) -> list[Done]:
        streams.call("STREAM.PURGE.LOGS_1", {"seq": 3})
        return here(work, tasks)

    for batches in keeper.batches(late):
        with pytest.raises(Refused, match=r"messages 1 to 2 of stream LOGS_1 .* --stop-on-loss"):
            batches.next()

    assert keeper.lines() == []


def test_counts_are_those_of_the_lines(streams: Streams, keeper: Keeper) -> None:
    """Each line is counted once, also one that was sent again."""
    send(streams, 0, 7)
    streams._offsets["node-a"] = 0
    streams.send("node-a", "line 0", resend=True)
    keeper.take()
    entries = files(logs(keeper.storage), area=ROLLUP_MINUTE)
    counted = sum(
        row["lines"]
        for table in tables(keeper.storage, entries, MINUTES)
        for row in table.to_pylist()
    )
    assert counted == len(keeper.lines()) == 14
    # What is told of the table is about lines, whatever is counted beside them.
    assert [batches.table.state.lines for batches in keeper.batches()] == [14]


def test_streams_of_one_task_share_its_files(streams: Streams, keeper: Keeper) -> None:
    """Lines and both counts have one file each, however many streams there are; a task that is
    repeated writes the same ones, and a merge finds each line once.
    """
    keeper.options["at_once"] = lambda: 1
    expected = send(streams, 0, 4)
    twice: list[list[Done]] = []

    def repeated(work: Work, tasks: Sequence[Task]) -> list[Done]:
        twice.append([task.run(work, each) for each in tasks])
        again = [task.run(work, each) for each in tasks]
        assert again == twice[-1]
        return again

    for batches in keeper.batches(repeated):
        batches.next()
    ((done,),) = twice
    expected += send(streams, 4, 6)
    keeper.take()

    assert [(part.stream, part.rows) for part in done.parts] == [("LOGS_0", 4), ("LOGS_1", 4)]
    assert len(done.files) <= 3 + 2, "an hour or a day may end meanwhile"
    assert len(upkeep(keeper.storage).compact(datetime(2100, 1, 1, tzinfo=UTC))) >= 1
    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_a_place_to_begin_is_chosen_once(streams: Streams, keeper: Keeper) -> None:
    """Also where nothing was there yet to begin with; a later start says another time."""
    send(streams, 0, 2)
    keeper.options["begin"] = Place("time", time_ns=time.time_ns())
    nothing = keeper.take()
    expected = send(streams, 2, 4)
    keeper.options["begin"] = Place("time", time_ns=time.time_ns())
    keeper.take()

    assert nothing == 0
    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_a_try_that_ends_late_changes_nothing(streams: Streams, keeper: Keeper) -> None:
    """Spark gave it up, and another one was committed: what it finds by then may be less."""
    expected = send(streams, 0, 4)
    late: list[tuple[Work, Task]] = []

    def tried_again(work: Work, tasks: Sequence[Task]) -> list[Done]:
        late.extend((work, each) for each in tasks)
        return [task.run(work, each, 1) for each in tasks]

    for batches in keeper.batches(tried_again):
        batches.next()
    for stream in STREAMS:
        streams.call(f"STREAM.PURGE.{stream}", {"seq": 3})
    ended = [task.run(work, each) for work, each in late]

    assert sum(part.rows for done in ended for part in done.parts) == 4
    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_lines_that_were_sent_again_in_many_streams_are_there_once(
    streams: Streams, keeper: Keeper
) -> None:
    """One task reads what is wanted of each of them."""
    keeper.options["at_once"] = lambda: 1
    expected = send(streams, 0, 2)
    streams._offsets = dict.fromkeys(streams._offsets, 0)
    for host in ("node-a", "node-b"):
        streams.send(host, "line 0", "line 1", "line 2", resend=True)
        expected.append((host, "line 2"))
    keeper.take()

    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_a_table_whose_state_is_lost_goes_on_when_it_is_made_anew(
    streams: Streams, keeper: Keeper
) -> None:
    """Each line is there once: those that the table has are not read again, also not where they are
    sent again; those that came meanwhile, and in part of a message, are.
    """
    expected = send(streams, 0, 5)
    keeper.take()
    streams._offsets = dict.fromkeys(streams._offsets, 0)
    # These bring no line: a row of the stream's last messages is not there.
    resent = [f"line {number}" for number in range(5)]
    for host in ("node-a", "node-b"):
        streams.send(host, *resent, resend=True)
    keeper.take()
    shutil.rmtree(Path(keeper.storage.url) / "_table")
    expected += send(streams, 5, 7)

    rebuild = Rebuild(keeper.storage, logs(keeper.storage))
    plan = rebuild.plan()
    assert plan is not None
    rebuild.carry_out(plan, wait=lambda seconds: None)
    for host in ("node-a", "node-b"):
        streams._offsets[host] = 0
        streams.send(host, *resent, "line 5", "line 6", "line 7", resend=True)
        expected.append((host, "line 7"))

    assert keeper.take() == 6
    expected += send(streams, 8, 9)
    assert keeper.take() == 2
    assert keeper.lines() == sorted(expected)
    assert verify(keeper.storage, logs(keeper.storage)).is_well


def test_what_json_lines_say_has_columns_of_its_own(streams: Streams, keeper: Keeper) -> None:
    """From the batch on in which it is asked for, also after a merge; each line is kept whole."""
    former = '{"status": 1, "msg": "before"}'
    streams.send("node-a", former)
    keeper.take()
    fields = (LineField(name="status", type="int"), LineField(name="took", type="float"))
    keeper.columns = Columns(rules=(ParseRule(format="json", fields=fields),))
    good, other = '{"status": 200, "took": 0.5, "msg": "é"}', '{"status": "none", "x": [1]}'
    streams.send("node-a", good, other, "no JSON")
    keeper.take()
    keeper.columns = NONE
    streams.send("node-b", good)
    keeper.take()

    for _ in range(2):
        with duck.opened(keeper.storage, logs(keeper.storage)) as connection:
            rows = connection.execute(
                "SELECT host, line, status, took, fields, parsed FROM lines ORDER BY seq, idx, host"
            ).fetchall()
        assert sorted(rows, key=str) == sorted(
            [
                ("node-a", former, None, None, None, None),
                ("node-a", good, 200, 0.5, '{"msg":"é"}', True),
                ("node-a", other, None, None, '{"x":[1],"status":"none"}', True),
                ("node-a", "no JSON", None, None, None, False),
                ("node-b", good, None, None, None, None),
            ],
            key=str,
        )
        assert len(upkeep(keeper.storage).compact(datetime(2100, 1, 1, tzinfo=UTC))) < 5
    assert verify(keeper.storage, logs(keeper.storage)).is_well
