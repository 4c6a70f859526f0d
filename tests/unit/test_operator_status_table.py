"""What the status says of the table: whether it is kept, how far it is, and seldom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from components.status_facts import (
    NOW,
    condition,
    jetstream,
    later,
    progress,
    table_state,
    with_table,
    working,
)
from logpipeline.lag import StreamLag
from logpipeline.tables.progress import is_overtaken_soon
from logpipeline_operator.status import Facts, Workload, events_of, is_changed, status_of
from logpipeline_operator.status.summary import FIGURES_EVERY_S
from logpipeline_operator.status.text import fresh_from

KIND = "TableRunning"
STREAM = "LP_team_prod_0"
HOUR_NS = 3600 * 10**9


def behind(age_s: float, size: int = 2**20) -> StreamLag:
    """A stream whose oldest line that is not in the table is so old."""
    return StreamLag(messages=1, bytes=size, age_s=age_s)


def of(facts: Facts) -> tuple[str, str, str]:
    """The condition of the table."""
    return condition(status_of(facts, None, NOW), KIND)


def test_a_table_that_is_kept_is_told_with_its_figures() -> None:
    """Where it lies, its last commit, its lines, and up to where each stream is in it."""
    status = status_of(with_table(), None, NOW)

    assert condition(status, KIND)[:2] == ("True", "TableRunning")
    assert condition(status)[0] == "True"
    assert status["table"] == {
        "path": "/table",
        "commit": 3,
        "rows": 7,
        "committedAt": "2026-05-04T12:00:00Z",
        "lag": "< 30 s",
        "streams": [
            {"name": "LP_team_prod_0", "sequence": 5},
            {"name": "LP_team_prod_1", "sequence": 5},
        ],
    }


def test_without_a_table_nothing_is_said_of_one() -> None:
    """It is no fault that none is wanted, and no event."""
    status = status_of(working(), None, NOW)

    assert condition(status, KIND)[:2] == ("False", "TableDisabled")
    assert condition(status)[0] == "True"
    assert "table" not in status
    assert not [e for e in events_of(None, status) if e.reason == "TableDisabled"]


@pytest.mark.parametrize("workload", [None, Workload(wanted=1), Workload(wanted=1, present=1)])
def test_a_pod_that_is_not_ready_is_told(workload: Workload | None) -> None:
    """Without a warning: Spark takes its time to start."""
    facts = with_table(table=workload)
    status = status_of(facts, status_of(with_table(), None, NOW), NOW)

    assert condition(status, KIND)[:2] == ("False", "TableNotReady")
    assert condition(status)[:2] == ("False", "TableNotReady")
    assert {e.type for e in events_of(status_of(with_table(), None, NOW), status)} == {"Normal"}


def test_the_job_s_own_sentence_says_why_it_failed() -> None:
    """It says more than that a container ends again and again, and what to do."""
    sentence = "/table belongs to team/other: choose another path."
    failed = table_state(progress=progress(problem=sentence))

    assert of(with_table(failed)) == (
        "False", "TableFailed", f"the table's job says: {sentence}",
    )  # fmt: skip


def test_the_stream_warns_before_it_overtakes_the_table() -> None:
    """While the lines are still there, as an event that is a warning."""
    before = status_of(with_table(), None, NOW)
    after = status_of(with_table(table_state(is_overtaken_soon=True)), before, NOW)
    (event,) = events_of(before, after)

    assert condition(after, KIND)[:2] == ("False", "TableFallingBehind")
    assert (event.type, event.reason) == ("Warning", "TableFallingBehind")
    assert STREAM in event.message


def test_a_table_that_holds_trimming_back_is_told_before_it_is_overtaken() -> None:
    """Which streams, what comes of it, and what to do; the text is the same with each look."""
    kind, reason, message = of(with_table(table_state(holds_back=True)))

    assert (kind, reason) == ("False", "TableHoldsBack")
    assert f"the table holds trimming back: {STREAM} fill above 50 %" in message
    assert "above 80 % these lines are deleted before the table reads them" in message


def test_a_table_that_was_overtaken_misses_lines_until_it_goes_on() -> None:
    """Also one that never began; about how many stays told, in words that change seldom."""
    overtaken = table_state(passed=False, holds_back=True, missed_messages=2345)
    begun = status_of(with_table(overtaken), None, NOW)
    lost = progress(commit=-1, path="", streams={}, problem="")
    never = status_of(with_table(replace(overtaken, progress=lost)), None, NOW)
    on = status_of(with_table(table_state(missed_messages=2345)), begun, later(60))

    for status in (begun, never):
        assert condition(status, KIND)[:2] == ("False", "TableOvertaken")
        assert status["table"]["missed"] == "at least 2000 messages"
    assert condition(on, KIND)[0] == "True"
    assert on["table"]["missed"] == "at least 2000 messages"


@pytest.mark.parametrize(
    ("lag", "limits", "is_soon"),
    [
        ((1, 1, 2600.0), {"max_age": HOUR_NS}, False),
        ((1, 1, 2800.0), {"max_age": HOUR_NS}, True),
        ((0, 0, 2800.0), {"max_age": HOUR_NS}, False),
        ((1, 1, 1e6), {"max_age": 0}, False),
        ((1, 80, 0.0), {"max_bytes": 100, "discard": "old"}, True),
        ((1, 80, 0.0), {"max_bytes": 100, "discard": "new"}, False),
        ((80, 1, 0.0), {"max_msgs": 100, "discard": "old"}, True),
        ((80, 1, 0.0), {"max_msgs": -1, "max_bytes": -1, "discard": "old"}, False),
    ],
)
def test_what_a_stream_keeps_decides_when_it_is_late(
    lag: tuple[int, int, float], limits: dict[str, Any], is_soon: bool
) -> None:
    """By the age of lines, and by size where room is made for newer ones; else it only fills."""
    messages, size, age_s = lag

    found = is_overtaken_soon(StreamLag(messages=messages, bytes=size, age_s=age_s), limits)

    assert found is is_soon


def test_figures_change_at_most_once_a_minute() -> None:
    """A commit every ten seconds is not a write of the resource every ten seconds."""
    status, writes = status_of(with_table(), None, NOW), 0
    for second in range(10, 601, 10):
        at_ns = int(later(second).timestamp()) * 10**9
        told = progress(commit=3 + second, rows=7 * second, at_ns=at_ns)
        new = status_of(with_table(table_state(progress=told)), status, later(second))
        writes += is_changed(status, new)
        status = new

    assert writes == 600 / FIGURES_EVERY_S


def test_the_last_figures_arrive_though_nothing_follows() -> None:
    """A table that came to rest within the minute is told as it is, after it."""
    first = status_of(with_table(), None, NOW)
    last = with_table(table_state(progress=progress(commit=4, rows=9)))
    soon = status_of(last, first, later(20))
    then = status_of(last, soon, later(FIGURES_EVERY_S + 20))

    assert soon["table"]["commit"] == 3
    assert then["table"]["commit"] == 4
    assert status_of(last, then, later(3600))["table"] == then["table"]


def test_a_job_that_starts_again_is_no_news() -> None:
    """It tells again what it told before, at another time."""
    first = status_of(with_table(), None, NOW)
    again = with_table(table_state(progress=progress(at_ns=int(later(7200).timestamp()) * 10**9)))

    assert status_of(again, first, later(7200))["table"] == first["table"]


def test_another_path_is_told_at_once() -> None:
    """The figures of two tables are not mixed."""
    first = status_of(with_table(), None, NOW)
    moved = with_table(table_state(progress=progress(path="s3://logs/prod", commit=0, rows=0)))

    assert status_of(moved, first, later(1))["table"]["path"] == "s3://logs/prod"


def test_who_works_once_an_hour_is_up_to_date_for_hours() -> None:
    """The lag's words do not change with each round, whatever the time between rounds."""
    assert [fresh_from(seconds) for seconds in (1, 10, 60, 3600, 86_400)] == [
        10, 30, 300, 14_400, 345_600,
    ]  # fmt: skip
    assert status_of(with_table(table_state(lag=behind(29))), None, NOW)["table"]["lag"] == "< 30 s"
    late = status_of(with_table(table_state(lag=behind(700))), None, NOW)
    assert late["table"]["lag"] == "1 MiB, 10 min"


def test_what_nobody_could_look_at_stays_with_its_lag_unknown() -> None:
    """Also where the job could not begin, and knows nothing of the table."""
    first = status_of(with_table(), None, NOW)
    away = status_of(with_table(jetstream=None), first, later(100))
    lost = table_state(
        progress=progress(commit=-1, path="", streams={}, problem="no bucket"), streams=()
    )
    begun = status_of(with_table(lost), first, later(100))

    for status in (away, begun):
        assert status["table"] == {**first["table"], "lag": "unknown"}


def test_a_state_before_the_first_commit_has_a_lag_only() -> None:
    """There is no table yet; what waits for it is known."""
    status = status_of(with_table(table_state(progress=None, lag=behind(100))), None, NOW)

    assert status["table"] == {"lag": "1 MiB, 1 min"}


def test_what_is_wrong_elsewhere_does_not_hide_the_table() -> None:
    """NATS that cannot be asked leaves the pod as what is known of it."""
    assert of(with_table(jetstream=None))[0] == "True"
    assert of(with_table(jetstream=jetstream(table=None)))[0] == "True"
