"""Ready means that each machine that should ship does; else its name is said."""

from __future__ import annotations

import pytest

from components.status_facts import NOW, condition, jetstream, working
from logpipeline.backlog import ShipperBacklog
from logpipeline_operator.status import Facts, Reason, Workload, previous_status, status_of

LATE = ShipperBacklog("prod-shipper-x", "", {"node-7": (10**9, 900.0), "node-3": (5, 301.0)})


def test_nodes_that_are_behind_are_counted_and_named() -> None:
    """By the condition, for people, and as fields, for programs."""
    status = status_of(working(jetstream=jetstream(behind=(LATE,))), None, NOW)

    assert condition(status)[:2] == ("False", "NodesBehind")
    assert "node-3, node-7" in previous_status.condition(status, "Ready")["message"]
    assert status["shippers"]["behind"] == 2
    assert status["shippers"]["behindNodes"] == "node-3, node-7"


def test_nodes_that_do_not_ship_are_named() -> None:
    """A shipper that is not ready, or not there yet."""
    shippers = Workload(wanted=3, present=3, ready=2, updated=3, nodes=("node-2",))
    status = status_of(working(shippers=shippers), None, NOW)

    assert condition(status)[:2] == ("False", "ShippersNotReady")
    assert (
        "2 of 3 shippers ready, not on node-2"
        in previous_status.condition(status, "Ready")["message"]
    )
    assert status["shippers"]["notReadyNodes"] == "node-2"


def test_trouble_of_a_shipper_is_said_in_its_words() -> None:
    """Of several that have the same, once."""
    told = tuple(
        ShipperBacklog(f"prod-shipper-{name}", "positions: disk full", {}) for name in "ab"
    )
    status = status_of(working(jetstream=jetstream(behind=told)), None, NOW)

    message = previous_status.condition(status, "Ready")["message"]
    assert condition(status)[:2] == ("False", "ShipperTrouble")
    assert message == "prod-shipper-a, prod-shipper-b: positions: disk full."


def test_message_does_not_change_with_each_byte() -> None:
    """The same nodes, further behind, are no write."""
    further = ShipperBacklog(
        "prod-shipper-x", "", {"node-7": (10**12, 1900.0), "node-3": (6, 400.0)}
    )
    first = status_of(working(jetstream=jetstream(behind=(LATE,))), None, NOW)

    assert status_of(working(jetstream=jetstream(behind=(further,))), first, NOW) == first


@pytest.mark.parametrize(
    ("facts", "states"),
    [
        (working(), ("True", "False", "False")),
        (working(collectors=None), ("False", "True", "False")),
        (working(jetstream=jetstream(behind=(LATE,))), ("False", "False", "True")),
    ],
    ids=["works", "under way", "waits for a person"],
)
def test_tools_for_kstatus_see_what_is_under_way(
    facts: Facts, states: tuple[str, str, str]
) -> None:
    """Never both at once, and neither of a pipeline that works."""
    status = status_of(facts, None, NOW)
    kinds = ("Ready", "Reconciling", "Stalled")
    found = [previous_status.condition(status, kind) for kind in kinds]

    assert tuple(each["status"] for each in found) == states
    assert len({each["reason"] for each in found}) == 1


def test_reason_for_nodes_behind_lasts() -> None:
    """It does not end by itself: an alert and a warning are right."""
    assert not Reason.NODES_BEHIND.value.is_passing
