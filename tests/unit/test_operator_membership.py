"""Who shares the partitions, how many pods must stay, and which stand in an update's way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.child_manifests import resource
from logpipeline.lag import PartitionState
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator import membership
from logpipeline_operator.children.model import ManagedServer
from logpipeline_operator.children.nats_server import USERS_ANNOTATION
from logpipeline_operator.children.nats_tls import MARK_ANNOTATION
from logpipeline_operator.durations import Durations
from logpipeline_operator.membership import CollectorPod
from logpipeline_operator.queue import Key

SET = "prod-collector"


def test_a_ready_collector_joins() -> None:
    """A new collector gets a share as soon as it is ready, and not before."""
    pods = [_pod(0), _pod(1), _pod(2, is_ready=False)]

    assert _members(pods, replicas=3, assigned=["prod-collector-0"]) == [
        "prod-collector-0",
        "prod-collector-1",
    ]


def test_a_collector_that_is_replaced_keeps_its_share() -> None:
    """Its files lie on its volume: a short absence moves nothing."""
    pods = [_pod(0), _pod(1, is_ready=False, away_s=membership.AWAY_MAX_S / 2)]
    assigned = ["prod-collector-0", "prod-collector-1"]

    assert _members(pods, replicas=2, assigned=assigned) == assigned
    assert _members(pods[:1], replicas=2, assigned=assigned) == assigned


def test_a_collector_that_stays_away_gives_its_share_to_others() -> None:
    """When a node is gone for good, nobody has to move partitions by hand."""
    pods = [_pod(0), _pod(1, is_ready=False, away_s=membership.AWAY_MAX_S + 1)]

    assert _members(pods, replicas=2, assigned=["prod-collector-0", "prod-collector-1"]) == [
        "prod-collector-0"
    ]


def test_a_collector_whose_pod_cannot_be_made_gives_its_share_to_others() -> None:
    """A used-up quota, say: there is no pod to say since when. Nor does one help that is made anew
    each time.
    """
    assigned = ["prod-collector-0", "prod-collector-1"]
    too_long = {"prod-collector-1": membership.AWAY_MAX_S}
    made_again = _pod(1, is_ready=False, away_s=1)

    assert _members([_pod(0)], replicas=2, assigned=assigned, absent_s=too_long) == assigned[:1]
    assert (
        _members([_pod(0), made_again], replicas=2, assigned=assigned, absent_s=too_long)
        == assigned[:1]
    )


def test_an_absence_lasts_until_the_collector_is_ready() -> None:
    """Whether it has a pod or not; each look sees who is absent."""
    now = 1000.0
    absences, key = Durations(clock=lambda: now), Key("logging", "prod")

    def look(*pods: CollectorPod) -> dict[str, float]:
        away = membership.not_ready(pods, replicas=2, stateful_set=SET)
        return absences.of(key, away)

    assert look(_pod(0)) == {"prod-collector-1": 0.0}
    now += 100
    assert look(_pod(0), _pod(1, is_ready=False)) == {"prod-collector-1": 100.0}
    now += 30
    assert look(_pod(0)) == {"prod-collector-1": 130.0}
    assert look(_pod(0), _pod(1)) == {}
    assert look(_pod(0)) == {"prod-collector-1": 0.0}
    now += 5
    absences.keep_only([])
    assert look(_pod(0)) == {"prod-collector-1": 0.0}


@given(
    replicas=st.integers(1, 5),
    assigned=st.sets(st.integers(0, 7)),
    pods=st.dictionaries(st.integers(0, 7), st.tuples(st.booleans(), st.floats(0, 1000))),
)
def test_somebody_always_has_the_partitions(
    replicas: int, assigned: set[int], pods: dict[int, tuple[bool, float]]
) -> None:
    """Whatever is seen, the partitions belong to collectors that there should be, once each."""
    chosen = _members(
        [_pod(n, is_ready=ready, away_s=0 if ready else away) for n, (ready, away) in pods.items()],
        replicas=replicas,
        assigned=[f"{SET}-{n}" for n in sorted(assigned)],
    )

    assert chosen
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {f"{SET}-{n}" for n in range(replicas)}


def test_a_pod_goes_only_after_it_has_given_its_partitions_up() -> None:
    """Scaling down waits for the hand-over."""
    held = [_state(0, "prod-collector-0"), _state(1, "prod-collector-3")]
    released = [_state(0, "prod-collector-0"), _state(1, "prod-collector-3", released=True)]

    assert _keep(held, wanted=2, current=4) == 4
    assert _keep(released, wanted=2, current=4) == 2


def test_nobody_waits_for_ever_for_a_hand_over() -> None:
    """After the drain's time the pod goes, and its successor takes over by its silence."""
    held = [_state(1, "prod-collector-3")]

    assert _keep(held, wanted=2, current=4, is_patient=False) == 2


def test_a_pod_stays_as_long_as_partitions_are_assigned_to_it() -> None:
    """Where no new assignment could be written, nobody else would take them, however long that
    lasts. Scaling to none is meant, and has no successor.
    """
    assigned = ("prod-collector-0", "prod-collector-3")
    held = [_state(1, "prod-collector-3")]

    assert _keep(held, wanted=2, current=4, is_patient=False, assigned=assigned) == 4
    assert _keep([], wanted=2, current=5, assigned=assigned) == 4
    assert _keep(held, wanted=0, current=4, assigned=assigned) == 0


def test_a_pod_of_a_broken_revision_is_freed() -> None:
    """The controller would wait for ever for a pod of the old revision that cannot start."""
    broken = _api_pod("prod-collector-0", revision="old", waiting=True)
    at_work = _api_pod("prod-collector-1", revision="old", waiting=False)
    newest = _api_pod("prod-collector-2", revision="new", waiting=True)

    found = membership.stuck_pods(_stateful_set(), [broken, at_work, newest], now=0.0)

    assert [pod["metadata"]["name"] for pod in found] == ["prod-collector-0"]


def test_no_pod_is_freed_before_the_new_revision_is_known() -> None:
    """A status of an older generation names the broken revision as the newest one."""
    broken = _api_pod("prod-collector-0", revision="old", waiting=True)

    assert membership.stuck_pods(_stateful_set(observed=1), [broken], now=0.0) == []


def test_a_pod_that_runs_and_does_not_get_ready_is_freed_in_the_end() -> None:
    """It may be about to become ready, but not for ever."""
    pod = _api_pod("prod-collector-0", revision="old", waiting=False)
    pod["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:00Z"}
    ]

    early = membership.stuck_pods(_stateful_set(), [pod], now=membership.STUCK_S - 1)
    late = membership.stuck_pods(_stateful_set(), [pod], now=membership.STUCK_S + 1)

    assert (early, late) == ([], [pod])


def test_pods_are_read_from_what_kubernetes_says() -> None:
    """Ready, since when not, and only pods of this set."""
    ready = _api_pod("prod-collector-10", revision="x", waiting=False)
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    away = _api_pod("prod-collector-2", revision="x", waiting=True)
    away["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    ]
    stranger = _api_pod("prod-collector-x", revision="x", waiting=True)

    found = membership.collector_pods([ready, away, stranger], SET, now=100.0)

    assert found == [
        CollectorPod(name="prod-collector-2", ordinal=2, is_ready=False, away_s=40.0),
        CollectorPod(name="prod-collector-10", ordinal=10, is_ready=True),
    ]


def _pod(ordinal: int, *, is_ready: bool = True, away_s: float = 0.0) -> CollectorPod:
    return CollectorPod(name=f"{SET}-{ordinal}", ordinal=ordinal, is_ready=is_ready, away_s=away_s)


def _members(
    pods: list[CollectorPod],
    *,
    replicas: int,
    assigned: list[str],
    absent_s: dict[str, float] | None = None,
) -> list[str]:
    return membership.members(
        pods, replicas=replicas, assigned=assigned, stateful_set=SET, absent_s=absent_s or {}
    )


def _state(partition: int, owner: str, *, released: bool = False) -> PartitionState:
    return PartitionState(
        partition=partition, stream=f"S_{partition}", is_there=True, owner=owner, released=released
    )


def _keep(
    survey: list[PartitionState],
    *,
    wanted: int,
    current: int,
    is_patient: bool = True,
    assigned: tuple[str, ...] = (),
) -> int:
    return membership.replicas_to_keep(
        wanted=wanted,
        current=current,
        survey=survey,
        assigned=assigned,
        stateful_set=SET,
        is_patient=is_patient,
    )


def _api_pod(name: str, *, revision: str, waiting: bool) -> dict[str, Any]:
    state: dict[str, Any] = {"waiting": {}} if waiting else {"running": {}}
    return {
        "metadata": {
            "name": name,
            "labels": {"controller-revision-hash": revision},
            "ownerReferences": [{"uid": "set"}],
        },
        "status": {"containerStatuses": [{"state": state}]},
    }


def _stateful_set(*, observed: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"uid": "set", "generation": 2},
        "status": {"updateRevision": "new", "observedGeneration": observed},
    }


@pytest.mark.parametrize(
    ("replicas", "known", "goes"),
    [
        (3, "new", False),
        (3, "old", True),
        # Made before pods said it: nothing was changed since.
        (3, None, False),
        # One alone is replaced by its StatefulSet.
        (1, "old", False),
    ],
)
def test_servers_that_know_other_users_go_at_once(
    replicas: int, known: str | None, goes: bool
) -> None:
    """One after the other, the first would wait for ever for those that do not let it in."""
    annotations = {} if known is None else {USERS_ANNOTATION: known}
    metadata = {"labels": {COMPONENT_LABEL: "nats"}, "annotations": annotations}
    server = {"metadata": {**metadata, "name": "prod-nats-0"}}
    ending = {"metadata": {**metadata, "deletionTimestamp": "2026-01-31T12:00:00Z"}}
    collector = {"metadata": {**metadata, "labels": {COMPONENT_LABEL: "collector"}}}
    pipeline = resource({"nats": {"managed": {"replicas": replicas}}})

    found = membership.isolated_servers(
        [server, ending, collector], pipeline, ManagedServer(users="new")
    )
    assert found == ([server] if goes else [])


@pytest.mark.parametrize(
    ("replicas", "pod", "now", "goes"),
    [
        (3, "", "b/b/2", True),
        (3, "b/b/2", "", True),
        (3, "a/a/1", "b/b/2", True),
        # Steps of a renewal: each side trusts the other.
        (3, "a/a/1", "a/b,a/1", False),
        (3, "a/b,a/1", "b/b,a/2", False),
        (3, "a/a/1", "b/b,a/2", True),
        (1, "a/a/1", "b/b/2", False),
    ],
)
def test_servers_that_would_not_join_the_next_one_go_at_once(
    replicas: int, pod: str, now: str, goes: bool
) -> None:
    """Without TLS, or with a certificate that the next server does not trust, the old ones would
    keep the first new one from becoming ready; in a renewal they go one by one.
    """
    annotations = {USERS_ANNOTATION: "u", **({MARK_ANNOTATION: pod} if pod else {})}
    server = {"metadata": {"labels": {COMPONENT_LABEL: "nats"}, "annotations": annotations}}
    pipeline = resource({"nats": {"managed": {"replicas": replicas}}})

    found = membership.isolated_servers(
        [server], pipeline, ManagedServer(users="u", certificate=now)
    )
    assert found == ([server] if goes else [])
