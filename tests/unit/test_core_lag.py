"""What a server says of a stream's replicas, and which of them do not keep up."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.lag import replicas_behind

SECOND_NS = 10**9


def replica(**fields: Any) -> dict[str, Any]:
    """A replica of a busy stream."""
    return {"name": "n2", "current": False, "active": SECOND_NS, "lag": 3, **fields}


@pytest.mark.parametrize(
    ("replicas", "behind"),
    [
        (None, ()),
        ([replica(current=True)], ()),
        # It lacks what was stored a moment ago.
        ([replica()], ()),
        ([replica(offline=True)], ("n2",)),
        ([replica(active=60 * SECOND_NS, lag=0)], ("n2",)),
        ([replica(lag=5000), replica(name="n1", lag=5000), replica(name="n3")], ("n1", "n2")),
    ],
)
def test_a_server_is_behind_that_is_away_silent_or_far_from_the_end(
    replicas: list[dict[str, Any]] | None, behind: tuple[str, ...]
) -> None:
    """And not one that lacks the newest messages of a busy stream."""
    assert replicas_behind({"cluster": {"leader": "n0", "replicas": replicas}}) == behind
    assert replicas_behind({}) == ()


@pytest.mark.parametrize(
    ("leads", "behind"),
    # A leader hears of its replicas within a second. Servers before 2.12 do not say since when they
    # lead.
    [
        ({"leader_since": "2026-11-28T06:34:58.5Z"}, ()),
        ({"leader_since": "2026-11-28T06:33:59.5Z"}, ("n2",)),
        ({}, ("n2",)),
    ],
)
def test_a_server_of_which_its_leader_never_heard_is_behind(
    leads: dict[str, str], behind: tuple[str, ...]
) -> None:
    """The leader's answer has 0 as the time since it heard of it, however long it leads."""
    cluster = {"leader": "n0", **leads, "replicas": [replica(active=0, lag=59)]}
    assert replicas_behind({"cluster": cluster, "ts": "2026-11-28T06:34:59.5Z"}) == behind
