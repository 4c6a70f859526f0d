"""How successive statuses become rows with rates, for `top` and `console`."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from components.watched_status import (
    collector,
    owned,
    partition,
    shipper,
    source,
    status,
    watched,
)
from logpipeline.layout import Layout, RunRecord
from logpipeline.nats.connection import NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import parse
from logpipeline_cli.console.answers import view_json
from logpipeline_cli.target import Target
from logpipeline_cli.watching.columns import MISSING
from logpipeline_cli.watching.gathering import PAUSE_S_MAX, Gathering, pause_s
from logpipeline_cli.watching.rows import SourceRow, View
from logpipeline_cli.watching.series import FORGET_S, HISTORY_MAX, Counters, Written, sparkline
from logpipeline_cli.watching.watch import SOURCES_MAX

RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "prod"},
    "spec": {"partitions": 4},
}


def only(view: View) -> SourceRow:
    """Return the only source of *view*."""
    (row,) = view.sources
    return row


def test_two_observations_give_a_rate() -> None:
    """Lines and bytes per second are what came since the last observation."""
    before = shipper(source(lines=10, acked_bytes=1000))
    after = shipper(source(lines=30, acked_bytes=5000))

    view = watched(status(shippers=[before]), status(shippers=[after]), every_s=2.0)

    assert (only(view).rate.lines_s, only(view).rate.bytes_s) == (10.0, 2000.0)
    assert view.shippers[0].rate.bytes_s == 2000.0
    assert {stage.name: stage.rate.bytes_s for stage in view.stages}["shippers"] == 2000.0


def test_the_first_observation_has_no_rate() -> None:
    """What was shipped since the shipper began says nothing of now."""
    view = watched(status(shippers=[shipper(source(lines=10**6, acked_bytes=10**9))]))

    assert only(view).rate.bytes_s == 0.0
    assert only(view).rate.history == ()


def test_a_counter_that_fell_began_anew() -> None:
    """A restarted shipper counts from 0: its rate is small, and never negative."""
    view = watched(
        status(shippers=[shipper(source(acked_bytes=10**9))]),
        status(shippers=[shipper(source(acked_bytes=500))]),
    )

    assert only(view).rate.bytes_s == 500.0


def test_a_missed_answer_makes_no_spike() -> None:
    """A shipper whose answer came late once ships as fast as before."""
    statuses = [
        status(shippers=[shipper(source(acked_bytes=100 * at))] if at != 2 else [])
        for at in range(5)
    ]

    view = watched(*statuses)

    assert only(view).rate.bytes_s == pytest.approx(100.0)
    assert {stage.name: stage.rate.bytes_s for stage in view.stages}["files"] == pytest.approx(100)
    assert view.problems == ()


def test_a_component_that_fell_silent_is_named() -> None:
    """A shipper or collector that answered before, and does not any more, is a problem."""
    there, gone = status(), status(shippers=[], collectors=[])

    view = watched(there, *[gone] * 9)

    assert view.problems == (
        "web has not answered for 9 s",
        "collector-0 has not answered for 9 s",
    )
    assert view.shippers[0].silent_s == 9.0
    assert only(view).silent_s == 9.0


def test_what_was_silent_for_long_is_forgotten() -> None:
    """A collector that was scaled away does not stay for ever."""
    gone = status(shippers=[], collectors=[])

    view = watched(status(), gone, every_s=FORGET_S + 1)

    assert (view.shippers, view.collectors, view.sources) == ((), (), ())


def test_a_busy_file_that_is_never_read_to_its_end_is_not_late() -> None:
    """The oldest waiting byte is as old as the growth of the file shows, not as the backlog."""
    statuses = [
        status(
            shippers=[
                shipper(source(acked_bytes=1000 * at, backlog_bytes=1500, waiting_s=60.0 + at))
            ]
        )
        for at in range(10)
    ]

    # 1500 bytes at 1000 a second: written within the last two observations.
    assert only(watched(*statuses)).waiting_s == 2.0


def test_a_source_that_stands_still_grows_older() -> None:
    """Where nothing is shipped, the age of the oldest byte is what the shipper says."""
    statuses = [
        status(shippers=[shipper(source(backlog_bytes=10, waiting_s=60.0 + at))]) for at in range(3)
    ]

    assert only(watched(*statuses)).waiting_s == 62.0


def test_what_misses_bytes_comes_first_then_what_waits_longest() -> None:
    """The worst source is on top, and a busy one that is well below those with a problem."""
    rows = [
        source(path="/busy", acked_bytes=10**6),
        source(path="/late", backlog_bytes=1, waiting_s=100.0),
        source(path="/later", backlog_bytes=1, waiting_s=200.0),
        source(path="/missing", missing_bytes=1),
    ]
    missing = [{"host": "web1", "source": "/missing", "bytes": 1, "toldBy": "shipper"}]

    view = watched(status(shippers=[shipper(*rows)], missing=missing))

    assert [row.source for row in view.sources][:3] == ["/missing", "/later", "/late"]
    assert view.sources[0].missing_by == ("shipper",)


def test_a_source_that_no_shipper_knows_is_shown_with_its_hole() -> None:
    """A collector waits for bytes of a host that is gone."""
    missing = [{"host": "gone", "source": "/app.log", "bytes": 5, "toldBy": "collector"}]
    lost = [
        {
            "host": "gone",
            "source": "/app.log",
            "generation": "g",
            "start": 0,
            "end": 7,
            "bytes": 7,
            "cause": "removed",
            "acknowledged": False,
            "time_ns": 1,
            "group": "",
        }
    ]

    view = watched(status(missing=missing, lost=lost))

    row = view.sources[0]
    assert (row.host, row.missing_bytes, row.lost_bytes) == ("gone", 5, 7)
    assert row.missing_by == ("collector",)


LOSS = {
    "host": "web1", "source": "/app.log", "generation": "0" * 16, "start": 0, "end": 7,
    "cause": "expired", "time_ns": 1,
}  # fmt: skip
HOLE = {"host": "web1", "source": "/app.log", "bytes": 5}


def with_group(
    group: str, *losses: dict[str, Any], missing: list[dict[str, Any]], **fields: Any
) -> dict[str, Any]:
    """Return the answer of a group's collector-0 with these *losses* and *missing* bytes."""
    holes = sum(each["bytes"] for each in missing)
    size = sum(each["end"] - each["start"] for each in losses)
    sums = {"missing_bytes": holes, "lost_bytes": size}
    return collector(owned(losses=list(losses), missing=missing, **sums, **fields), group=group)


def test_what_two_groups_lack_is_counted_once() -> None:
    """Each has read the same stream; both are named where the page says who misses it."""
    answers = [with_group(group, LOSS, missing=[HOLE]) for group in ("audit", "main")]

    view = watched(status(collectors=answers))

    assert view.problems == (
        "7 B are lost (expired): see `logpipeline losses`",
        "5 B did not arrive, and may still be sent again",
    )
    [row] = [each for each in view.sources if each.source == "/app.log"]
    assert (row.lost_bytes, row.missing_bytes) == (7, 5)
    assert [(each.what, each.by) for each in view.missing] == [
        ("lost: expired", "its shipper"),
        ("a hole, which may still be filled", "a collector"),
        ("a hole, which may still be filled", "a collector (group audit)"),
    ]
    rows = view_json(view, MISSING, text="", by="")["table"]["rows"]
    assert len({each["key"] for each in rows}) == len(rows) == 3


def test_what_another_group_alone_lacks_is_said_as_its_own() -> None:
    """It was away, while the pipeline's own group collected."""
    more = {**LOSS, "start": 90, "end": 100}
    answers = [
        with_group("main", LOSS, missing=[HOLE]),
        with_group("audit", LOSS, more, missing=[{**HOLE, "bytes": 6}, {**HOLE, "source": "/b"}]),
    ]

    view = watched(status(collectors=answers))

    assert view.problems == (
        "7 B are lost (expired): see `logpipeline losses`",
        "5 B did not arrive, and may still be sent again",
        "group audit: 10 B are lost (expired): see `logpipeline losses`",
        "group audit: 6 B did not arrive, and may still be sent again",
    )


def test_rates_of_partitions_are_those_of_the_own_group() -> None:
    """Collectors of another group may have the same names."""
    statuses = [
        status(
            collectors=[
                with_group("main", missing=[], bytes=100 * at),
                with_group("tail", missing=[], bytes=10**6 * at),
            ]
        )
        for at in range(3)
    ]

    assert watched(*statuses).partitions[0].rate.bytes_s == 100.0


def test_a_silent_collector_of_another_group_is_named_with_it() -> None:
    """Each group has a collector-0."""
    both = status(collectors=[with_group(group, missing=[]) for group in ("audit", "main")])

    view = watched(both, *[status(collectors=[])] * 9)

    assert view.problems == (
        "collector-0 of group audit has not answered for 9 s",
        "collector-0 has not answered for 9 s",
    )


def test_what_no_list_names_is_missing_too() -> None:
    """By partition; and what is acknowledged is not lost there."""
    row = {"host": "web1", "source": "/app.log", "bytes": 5}
    sums = {
        "lost": 9000,
        "lost_new": 30,
        "lost_unlisted": 30,
        "missing": 60,
        "missing_unlisted": 55,
    }
    place = {"group": "main", "partition": 0, "is_heard": True}

    view = watched(
        status(
            missing=[{**row, "toldBy": "collector", "group": "main"}],
            partitions=[partition(lost_bytes=9000, missing_bytes=60)],
            sums=[sums | place],
        )
    )

    assert [(row.host, row.bytes, row.what) for row in view.missing] == [
        ("", 55, "holes of sources of partition 0 that are not listed"),
        ("", 30, "lost of sources of partition 0 that are not listed"),
        ("web1", 5, "a hole, which may still be filled"),
    ]
    assert (view.partitions[0].missing_bytes, view.partitions[0].lost_bytes) == (60, 30)


def test_of_a_fleet_the_worst_sources_are_shown() -> None:
    """Beyond the limit, the sums still hold all sources, and the worst have their rows."""
    rows = [source(path=f"/{at}", backlog_bytes=at, waiting_s=at) for at in range(SOURCES_MAX + 9)]

    view = watched(status(shippers=[shipper(*rows)]))

    assert len(view.sources) == SOURCES_MAX
    assert view.sources_total == SOURCES_MAX + 9
    assert view.sources[0].source == f"/{SOURCES_MAX + 8}"
    assert view.stages[0].waiting_bytes == sum(range(SOURCES_MAX + 9))


def test_a_partition_that_moves_does_not_shake_the_rates() -> None:
    """A partition counts from 0 at its next owner: no rate falls, or jumps to its sum."""
    first = status(
        collectors=[collector(owned(0, bytes=10**6), owned(1, bytes=10**6))],
        partitions=[partition(0), partition(1)],
    )
    second = status(
        collectors=[
            collector(owned(0, bytes=10**6 + 100)),
            collector(owned(1, bytes=50, epoch=2), member="collector-1"),
        ],
        partitions=[partition(0), partition(1, owner="collector-1")],
    )

    view = watched(first, second)

    rates = {row.member: row.rate.bytes_s for row in view.collectors}
    assert rates == {"collector-0": 100.0, "collector-1": 0.0}


def test_what_one_stream_of_all_partitions_stores_is_counted_once() -> None:
    """Its end is that of each partition."""
    states = [
        [partition(number, stream="LOGS", last_sequence=end) for number in range(3)]
        for end in (100, 110)
    ]

    view = watched(*(status(partitions=each) for each in states))

    assert sum(row.stored_s for row in view.partitions) == 10.0


def test_partitions_without_owner_or_stream_come_first() -> None:
    """Their state says what is wrong, and a move where it goes."""
    states = [
        partition(0, lag_s=500.0),
        partition(1, assigned="collector-1"),
        partition(2, owner=""),
        partition(3, is_there=False),
        partition(4, owner="", is_known=False),
    ]

    view = watched(status(partitions=states))

    assert {row.partition: row.state for row in view.partitions} == {
        0: "",
        1: "moves to collector-1",
        2: "no owner",
        3: "no stream",
        4: "not known",
    }
    assert view.partitions[-1].partition == 0


def test_a_stream_that_is_answered_for_again_has_not_been_filled_meanwhile() -> None:
    """While no server answers for a stream, its last sequence is given as 0."""
    silent = partition(0, owner="", is_known=False)
    known = [partition(0, last_sequence=number) for number in (9_000, 9_010)]
    rates = [
        watched(*(status(partitions=[each]) for each in states)).partitions[0].stored_s
        for states in ([known[0], silent], [known[0], silent, known[1]])
    ]

    assert rates == [0.0, 5.0]


def test_readers_and_tables_have_rates() -> None:
    """A reader's messages and a table's lines per second come from what the server counts."""

    def at(read: int, rows: int) -> dict[str, Any]:
        streams = [
            {
                "stream": f"LOGS_{number}",
                "read": read,
                "pendingMessages": 3,
                "unacknowledged": 2,
                "redelivered": 1,
                "missedMessages": 7,
                "missed": [],
            }
            for number in range(2)
        ]
        lag = {"messages": 4, "bytes": 40, "age_s": 1.5}
        table = {
            "name": "default.prod",
            "path": "/t",
            "commit": 1,
            "rows": rows,
            "problem": "",
            "missed_messages": 0,
            "streams": [{"lag": lag, "passed": True, "holds_back": 0}],
        }
        return status(readers=[{"name": "billing", "streams": streams}], tables=[table])

    view = watched(at(10, 100), at(15, 400))

    (reader,), (table,) = view.readers, view.tables
    assert (reader.messages_s, reader.pending_messages, reader.partitions) == (10.0, 6, 2)
    assert reader.missed_messages == 14
    assert (table.lines_s, table.lag_s, table.lag_bytes) == (300.0, 1.5, 40)


def test_a_history_is_bounded_and_counters_are_forgotten() -> None:
    """A window that is open for weeks does not grow."""
    counters = Counters()
    for at in range(HISTORY_MAX * 3):
        series = counters.observe("old", at, at)
    assert len(series.rates) == HISTORY_MAX

    counters.forget(HISTORY_MAX * 3 + FORGET_S)

    assert counters.observe("old", 10_000.0, 5).rates == series.rates.__class__()


def test_bytes_that_came_before_the_first_look_have_no_known_age() -> None:
    """Then the shipper's own word counts alone."""
    assert Written().age_s(1.0, done=5, waiting=10) is None
    assert Written().age_s(1.0, done=5, waiting=0) == 0.0


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [
        ((), 3, "   "),
        ((0.0, 0.0), 2, "  "),
        ((1.0, 8.0), 3, " ▂█"),
        ((9.0, 4.0, 8.0), 2, "▅█"),
        ((0.0001, 100.0), 2, "▁█"),
    ],
)
def test_a_sparkline_is_as_wide_as_asked(values: tuple[float, ...], width: int, shown: str) -> None:
    """The largest value is a full bar, a small one is still seen, and nothing is a blank."""
    assert sparkline(values, width) == shown


def test_looking_takes_a_quarter_of_the_time_at_most() -> None:
    """A pipeline that is slow to answer, or large, is asked less often."""
    few = status()
    many = status(shippers=[{"sources": [{}] * 1000} for _ in range(50)])

    assert pause_s(few, 0.2) == pytest.approx(0.8)
    assert pause_s(few, 2.0) == pytest.approx(6.0)
    assert pause_s(many, 0.2) == pytest.approx(10.0)
    assert pause_s(many, 10**3) == PAUSE_S_MAX


async def test_what_up_says_of_itself_is_read_at_each_look(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A top that was opened before shows the trouble that came since."""
    layout = Layout(tmp_path)
    record = RunRecord(name="prod", namespace="default", pid=os.getpid(), nats="")
    target = Target(parse(RESOURCE), layout, NatsOptions(), record)
    gathering = Gathering(target, cast(JetStream, None))

    async def gathered(_: JetStream, target: Target) -> dict[str, Any]:
        assert target.run is not None
        return status(serverTrouble=target.run.trouble)

    monkeypatch.setattr("logpipeline_cli.watching.gathering.gather", gathered)
    replace(record, trouble="its disk is full").write(layout)

    looking = asyncio.create_task(gathering.run())
    view = await anext(gathering.views.follow())
    looking.cancel()

    assert any("its disk is full" in each for each in view.problems)
