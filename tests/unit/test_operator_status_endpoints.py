"""A pipeline does not work whose Services lead nowhere, however ready its pods are."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline_operator.status import Part, Reason
from logpipeline_operator.status.pods import endpoint_problems

SELECTOR = {"app.kubernetes.io/instance": "prod", "app.kubernetes.io/component": "nats"}
SERVICE = {
    "kind": "Service", "metadata": {"name": "prod-nats"}, "spec": {"selector": SELECTOR},
}  # fmt: skip


def pod(name: str, *, is_ready: bool = True, labels: Any = SELECTOR, **metadata: Any) -> Any:
    """A pod, whose uid is its name twice."""
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    return {
        "metadata": {"name": name, "uid": name * 2, "labels": labels, **metadata},
        "status": {"conditions": [ready]},
    }


def leading_to(*names: str, service: str = "prod-nats", **conditions: bool) -> Any:
    """A slice of *service* with an endpoint for each pod *names*."""
    endpoints = [{"targetRef": {"uid": name * 2}, "conditions": conditions} for name in names]
    return {"metadata": {"labels": {"kubernetes.io/service-name": service}}, "endpoints": endpoints}


@pytest.mark.parametrize(
    ("slices", "what"),
    [
        ([], "has no endpoint"),
        ([leading_to()], "has no endpoint"),
        ([{**leading_to(), "endpoints": None}], "has no endpoint"),
        ([leading_to("a", "b", service="prod-nats-headless")], "has no endpoint"),
        ([leading_to("a", "b", ready=False)], "has no endpoint"),
        # Pods of the same names that are gone.
        ([leading_to("aa", "bb")], "has no endpoint"),
        ([leading_to("b", ready=True)], "has no endpoint for a"),
        ([leading_to("b"), leading_to("a", ready=True)], ""),
        ([leading_to("a", "b", "c")], ""),
    ],
)
def test_a_service_leads_to_each_of_its_ready_pods(slices: list[Any], what: str) -> None:
    """Whatever the reason is: its own selector, a label of a pod, or Kubernetes."""
    found = endpoint_problems([SERVICE], slices, [pod("a"), pod("b")])

    assert [each.what for each in found] == ([f"Service prod-nats {what}"] if what else [])
    assert all((each.reason, each.part) == (Reason.NO_ENDPOINTS, Part.NATS) for each in found)


def test_a_pod_that_ends_is_missed_where_it_is_the_last_one() -> None:
    """Its condition may say for a minute that it is ready, while nobody is led to it any more."""
    ending = pod("a", deletionTimestamp="2026-05-04T12:00:00Z")

    (found,) = endpoint_problems([SERVICE], [leading_to("a", ready=False)], [ending])

    assert found.what == "Service prod-nats has no endpoint"
    assert not endpoint_problems([SERVICE], [leading_to("b")], [ending, pod("b")])


def test_pods_that_are_not_ready_or_another_s_are_not_missed() -> None:
    """The first have findings of their own; the others were never meant."""
    others = [pod("c", is_ready=False), pod("d", labels={"app.kubernetes.io/instance": "prod"})]

    assert not endpoint_problems([SERVICE], [], others)
    assert not endpoint_problems([{"kind": "ConfigMap", "metadata": {"name": "x"}}], [], [pod("a")])
