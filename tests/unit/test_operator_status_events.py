"""Events tell each transition once, and what was put right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given

from components.status_facts import NOW, any_facts, jetstream, later, working
from logpipeline.nats.connection import ConnectFailed
from logpipeline_operator.status import (
    Event,
    Facts,
    Mode,
    News,
    Workload,
    events_of,
    news_of,
    status_of,
)
from logpipeline_operator.status import errors as errors_of

AWAY = working(
    jetstream=None,
    findings=[errors_of.of_nats(ConnectFailed("cannot connect to NATS at x: no server"))],
)


def told(before: Facts | None, after: Facts) -> list[tuple[str, str]]:
    """Types and reasons of the events between two looks."""
    first = status_of(before, None, NOW) if before else None
    return [(event.type, event.reason) for event in events_of(first, status_of(after, first, NOW))]


def test_a_pipeline_that_comes_up_says_so() -> None:
    """Its first look at all being well tells of each part; that nothing is paused is no news."""
    assert told(None, working()) == [
        ("Normal", "Working"),
        ("Normal", "StreamsAsWanted"),
        ("Normal", "CollectorsReady"),
        ("Normal", "ShippersReady"),
    ]


def test_a_failure_and_its_end_are_told_once_each() -> None:
    """There and back again: an event for each way, and none while it lasts."""
    assert told(working(), AWAY) == [("Warning", "NatsUnreachable")]
    assert told(AWAY, AWAY) == []
    assert told(AWAY, working()) == [("Normal", "Working"), ("Normal", "StreamsAsWanted")]


def test_one_cause_is_one_event() -> None:
    """Conditions that are False for the same reason do not each tell of it."""
    down = working(collectors=Workload(wanted=2, present=2, updated=2))

    assert told(working(), down) == [("Normal", "CollectorsNotReady")]


def test_what_a_user_asked_for_is_no_warning() -> None:
    """A pause is told, and warned of by nobody."""
    paused = working(mode=Mode.PAUSED, pending=["apply ConfigMap prod-collector"])

    assert told(working(), paused) == [("Normal", "Paused")]
    assert ("Normal", "Active") in told(paused, working())


def test_another_reason_is_another_event() -> None:
    """Not ready any more for this, but for that: users want to know."""
    refused = replace(AWAY, findings=[errors_of.of_secret("the Secret x does not exist")])

    assert told(AWAY, refused) == [("Warning", "SecretMissing")]


def test_a_long_lag_of_words_is_no_event() -> None:
    """Figures that move are no transitions."""
    other = working(jetstream=jetstream(commit_ages_s={0: 1.0}), nats=None)

    assert told(working(), other) == []


def test_drift_is_told_when_it_is_put_right() -> None:
    """Who changes a child by hand hears that it does not last, and what to do instead."""
    (event,) = news_of(working(news=News(drifted=["StatefulSet prod-collector (spec.replicas)"])))

    assert event == Event(
        "Normal",
        "DriftCorrected",
        "Corrected changes of other managers: StatefulSet prod-collector (spec.replicas). "
        "Change the LogPipeline instead, or pause it first.",
    )
    assert news_of(working()) == []


def test_refused_logins_are_named_with_what_to_do() -> None:
    """Who comes with what opens nothing is told of as a warning."""
    (event,) = news_of(working(news=News(refused_logins="2 without a token (last from 10.0.0.7)")))

    assert (event.type, event.reason) == ("Warning", "LoginsRefused")
    assert event.message.startswith(
        "The managed server refused logins: 2 without a token (last from 10.0.0.7). Find the pod"
    )


@given(any_facts(), any_facts())
def test_there_and_back_tells_of_transitions_only(a: Facts, b: Facts) -> None:
    """Each event is of a condition that just came to be so; the same look again tells nothing."""
    first = status_of(a, None, NOW)
    second = status_of(b, first, later(1))
    third = status_of(a, second, later(2))

    for before, after in ((None, first), (first, second), (second, third)):
        events = events_of(before, after)
        fresh = _states(after) - _states(before)
        assert {event.reason for event in events} <= {reason for _, _, reason in fresh}
        assert len({event.reason for event in events}) == len(events)
        ready = next(state for state in _states(after) if state[0] == "Ready")
        if before is not None and ready in fresh and ready[1] != "Unknown":
            assert events[0].reason == ready[2]
    assert events_of(third, status_of(a, third, later(3))) == []


def _states(status: dict[str, Any] | None) -> set[tuple[str, str, str]]:
    found = status["conditions"] if status else []
    return {(each["type"], each["status"], each["reason"]) for each in found}
