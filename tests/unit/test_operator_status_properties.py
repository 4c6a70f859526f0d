"""Whatever a look finds, the status is true, bounded, and of the form that the CRD demands."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from components.status_facts import NOW, PASSWORD, any_facts, condition, later, working
from logpipeline.spec.crd import CHECKED_EVERY_S, STATUS_SCHEMA
from logpipeline_operator.status import (
    Facts,
    Mode,
    Reason,
    events_of,
    is_changed,
    news_of,
    status_of,
)

# A whole look is slow to make up; a share of the usual examples is enough for each promise.
share = settings(max_examples=settings.default.max_examples // 3)  # type: ignore[union-attr]
MESSAGE_BYTES_MAX = 1024
BAD_LETTERS = re.compile(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def misfits(value: Any, schema: dict[str, Any], path: str = "status") -> list[str]:
    """What of *value* the API server would refuse, or silently drop, with *schema*."""
    kinds = {"string": str, "integer": int, "object": dict, "array": list}
    if not isinstance(value, kinds[schema["type"]]):
        return [f"{path} is no {schema['type']}"]
    found = []
    if isinstance(value, dict):
        properties = schema["properties"]
        missing = set(schema.get("required", ())) - set(value)
        found += [f"{path}.{key} is missing" for key in sorted(missing)]
        for key, each in value.items():
            known = key in properties
            found += misfits(each, properties[key], f"{path}.{key}") if known else [f"{path}.{key}"]
    elif isinstance(value, list):
        for number, each in enumerate(value):
            found += misfits(each, schema["items"], f"{path}[{number}]")
        keys = [each[schema["x-kubernetes-list-map-keys"][0]] for each in value]
        found += [f"{path} says a key twice"] * (len(set(keys)) != len(keys))
        found += [f"{path} is too long"] * (len(value) > schema.get("maxItems", len(value)))
    elif isinstance(value, str):
        found += [f"{path} has a bad length"] * (
            not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        )
        found += [f"{path} is none of the choices"] * (value not in schema.get("enum", [value]))
        found += [f"{path} does not match"] * (re.search(schema.get("pattern", ""), value) is None)
        if schema.get("format") == "date-time":
            datetime.fromisoformat(value)
    else:
        found += [f"{path} is too small"] * (value < schema.get("minimum", value))
    return found


@share
@given(any_facts(), any_facts())
def test_a_status_is_of_the_form_that_the_resource_demands(before: Facts, after: Facts) -> None:
    """The API server takes every status that can come to be, and drops no field of it."""
    first = status_of(before, None, NOW)

    assert misfits(first, STATUS_SCHEMA) == []
    assert misfits(status_of(after, first, NOW), STATUS_SCHEMA) == []


@share
@given(any_facts())
def test_ready_means_that_it_works(facts: Facts) -> None:
    """Ready is never said of a pipeline of which any part does not work."""
    status = status_of(facts, None, NOW)
    if condition(status)[0] == "True":
        jetstream, collectors = facts.jetstream, facts.collectors

        assert facts.pipeline is not None
        assert facts.mistakes is None
        assert not facts.findings
        assert jetstream is not None
        assert not jetstream.plan.blocking
        assert jetstream.report is None or jetstream.report.is_complete
        if facts.mode is not Mode.ACTIVE:
            assert not facts.pending
            assert jetstream.plan.is_empty
        assert collectors is not None
        assert 0 < collectors.wanted <= collectors.ready
        assert collectors.is_current
        for state in jetstream.partitions:
            assert state.is_there
            assert state.owner == state.assigned != ""
            assert not state.released
            age_s = jetstream.commit_ages_s.get(state.partition, state.lag_s)
            assert state.lag_messages == 0 or min(age_s, state.lag_s) <= 60
        if facts.pipeline.spec.table.enabled:
            assert condition(status, "TableRunning")[0] == "True"
            assert facts.table is not None
            assert facts.table.ready > 0
            table = jetstream.table
            assert table is None or not table.overtaken_soon
            assert table is None or table.progress is None or not table.progress.problem
        assert condition(status, "StreamsReady")[0] == "True"
        assert condition(status, "CollectorsAvailable")[0] == "True"
        assert condition(status, "ShippersAvailable")[0] != "False"


@share
@given(any_facts())
def test_ready_gives_the_reason_nearest_to_the_cause(facts: Facts) -> None:
    """No other condition that is False knows of an earlier cause than Ready does."""
    status = status_of(facts, None, NOW)
    ranks = {reason.word: reason.rank for reason in Reason}
    ready = ranks[condition(status)[1]]
    others = [
        ranks[each["reason"]]
        for each in status["conditions"]
        if each["status"] == "False"
        and each["type"] not in ("Durable", "Complete", "Paused")
        # None is wanted: nobody has to find a cause for that.
        and each["reason"] != Reason.TABLE_DISABLED.word
    ]

    assert all(ready <= other for other in others)


@share
@given(any_facts(), any_facts())
def test_texts_are_short_plain_and_without_secrets(before: Facts, after: Facts) -> None:
    """What comes from servers, pods and users cannot flood, colour or betray anything."""
    first = status_of(before, None, NOW)
    second = status_of(after, first, NOW)
    texts = [each["message"] for status in (first, second) for each in status["conditions"]]
    texts += [event.message for event in [*events_of(first, second), *news_of(after)]]

    for text in texts:
        assert text
        assert len(text.encode()) <= MESSAGE_BYTES_MAX
        assert not BAD_LETTERS.search(text)
        assert PASSWORD not in text


@share
@given(st.lists(st.tuples(any_facts(), st.integers(-100, 100)), min_size=2, max_size=5))
def test_a_time_changes_with_its_status_only_and_never_goes_back(
    looks: list[tuple[Facts, int]],
) -> None:
    """lastTransitionTime says since when it is so, also when a clock is set back."""
    statuses: list[dict[str, Any]] = []
    for facts, seconds in looks:
        statuses.append(status_of(facts, statuses[-1] if statuses else None, later(seconds)))

    for before, after in pairwise(statuses):
        for old, new in zip(before["conditions"], after["conditions"], strict=True):
            assert old["lastTransitionTime"] <= new["lastTransitionTime"]
            if old["status"] == new["status"]:
                assert old["lastTransitionTime"] == new["lastTransitionTime"]


@share
@given(any_facts())
def test_the_same_look_again_is_no_write_and_no_event(facts: Facts) -> None:
    """An idle pipeline causes no write, whatever state it is in, and whoever wrote its claim."""
    first = status_of(facts, {"claimedAt": "2026-05-04T00:00:00.123Z"}, NOW)
    second = status_of(facts, first, later(CHECKED_EVERY_S - 1))

    assert not is_changed(first, second)
    assert events_of(first, second) == []


@share
@given(any_facts())
def test_the_same_look_much_later_confirms_the_status_alone(facts: Facts) -> None:
    """Two minutes after the last time it says when that was, and nothing else is written."""
    first = status_of(facts, None, NOW)
    second = status_of(facts, first, later(CHECKED_EVERY_S))

    assert second["lastChecked"] > first["lastChecked"]
    assert not is_changed({**first, "lastChecked": second["lastChecked"]}, second)
    assert events_of(first, second) == []


@share
@given(any_facts())
def test_everything_that_is_wrong_is_told_with_what_to_do(facts: Facts) -> None:
    """A condition that is False has a reason of the table, which the documentation explains."""
    status = status_of(facts, None, NOW)
    words = {reason.word for reason in Reason}

    assert {each["reason"] for each in status["conditions"]} <= words
    assert status["conditions"] == sorted(status["conditions"], key=lambda each: each["type"])


_KEYS = ["conditions", "type", "lastTransitionTime", "lag", "partitions", "subject", "streams"]
_nonsense = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_KEYS), inner),
    max_leaves=8,
)


@share
@given(any_facts(), _nonsense, _nonsense)
def test_a_status_that_somebody_else_wrote_does_no_harm(facts: Facts, some: Any, more: Any) -> None:
    """Whoever may write a status can write nonsense; the next look puts it right."""
    previous = {"conditions": [some], "collectors": {"assignments": more, "selector": some}}
    previous |= some if isinstance(some, dict) else {}

    assert misfits(status_of(facts, previous, NOW), STATUS_SCHEMA) == []


def test_what_is_taken_over_from_nonsense_is_what_fits() -> None:
    """Of a status of another's hand only values of the right kind stay, each collector once."""
    row = {"name": "prod-collector-0", "partitions": "0-3"}
    odd = [None, {"name": 1, "partitions": "0"}, {"name": "x"}, {**row, "partitions": "0"}, row]
    previous = {
        "partitions": True,
        "subject": ["lp"],
        "streams": "LP_team_prod",
        "collectors": {"assignments": odd, "selector": 7},
    }
    status = status_of(working(pipeline=None, jetstream=None), previous, NOW)

    assert misfits(status, STATUS_SCHEMA) == []
    assert "partitions" not in status
    assert "subject" not in status
    assert status["streams"] == "LP_team_prod"
    assert status["collectors"]["assignments"] == [row]


def test_a_working_pipeline_is_ready() -> None:
    """The start of all the other cases is good: Ready, with every condition as it should be."""
    status = status_of(working(), None, NOW)

    assert {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]} == {
        "TableRunning": ("False", "TableDisabled"),
        "CollectorsAvailable": ("True", "CollectorsReady"),
        "Complete": ("True", "NothingLost"),
        "Durable": ("True", "SyncAlways"),
        "Paused": ("False", "Active"),
        "Ready": ("True", "Working"),
        "Reconciling": ("False", "Working"),
        "ShippersAvailable": ("True", "ShippersReady"),
        "Stalled": ("False", "Working"),
        "StreamsReady": ("True", "StreamsAsWanted"),
    }
