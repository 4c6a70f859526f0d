"""Where collectors' files are in a cluster, and the pods that read those of collectors gone."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.child_manifests import children as build_children
from cluster.child_manifests import pod_templates, resource
from logpipeline_cli.cluster.agent_pods import Claimed, Running, manifest, places, waiting_for
from logpipeline_operator.children import Manifest


def pod(number: int, *, is_running: bool = True, node: str = "node-1") -> Manifest:
    """A collector's pod."""
    state = {"running": {}} if is_running else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {
        "metadata": {"name": f"prod-collector-{number}"},
        "spec": {"nodeName": node} if node else {},
        "status": {"containerStatuses": [{"name": "collector", "state": state}]},
    }


def claim(name: str) -> Manifest:
    """A claim."""
    return {"metadata": {"name": name}}


CLAIMS = [claim(f"data-prod-collector-{number}") for number in (10, 2, 1, 0)]


def test_claims_without_a_pod_are_read_by_number() -> None:
    """What a collector left that was scaled away is found, and a running one's is not claimed."""
    seen = places(resource({}), [pod(0)], CLAIMS)

    assert seen.running == (Running("prod-collector-0", "/data"),)
    assert [place.member for place in seen.claimed] == [
        "prod-collector-1", "prod-collector-2", "prod-collector-10",
    ]  # fmt: skip
    assert {place.node for place in seen.claimed} == {""}


def test_a_crashing_collectors_claim_is_read_on_its_node() -> None:
    """The volume is open there, and elsewhere it could not be."""
    seen = places(resource({}), [pod(0, is_running=False, node="node-7")], CLAIMS[-1:])

    assert seen.claimed == (Claimed("data-prod-collector-0", "prod-collector-0", "node-7"),)


def test_a_collector_without_a_node_is_left_out_and_told() -> None:
    """Whoever reads must know that something is missing."""
    seen = places(resource({}), [pod(0, is_running=False, node="")], CLAIMS[-1:])

    assert seen.claimed == ()
    assert seen.notes == ("prod-collector-0 has no node yet; its files are left out",)


def test_claims_of_others_are_left_alone() -> None:
    """A claim with our labels and another name is not ours to mount."""
    others = [claim("data-other-collector-0"), claim("data-prod-collector-x"), claim("prod")]

    assert places(resource({}), [], others).claimed == ()


def test_other_volumes_have_their_own_ways() -> None:
    """A shared claim is mounted once; folders of a node are seen by who runs there; what goes
    with a pod is gone with it.
    """

    def of(persistence: dict[str, Any]) -> Any:
        return places(
            resource({"collectors": {"persistence": persistence}}),
            [pod(0), pod(1, is_running=False)], [],
        )  # fmt: skip

    shared, node, fleeting = (
        of({"existingClaim": "c"}),
        of({"hostPath": "/srv"}),
        of({"emptyDir": {}}),
    )

    assert shared.claimed == (Claimed("c", "prod-collector", "node-1", True),)
    assert node.running == (Running("prod-collector-0", "/data/prod-collector-0", "/data"),)
    assert (node.claimed, fleeting.claimed) == ((), ())
    assert len(node.notes) == len(fleeting.notes) == 1


def reader(place: Claimed, collectors: dict[str, Any] | None = None) -> Manifest:
    """The pod that reads *place*."""
    spec = {"collectors": collectors or {}}
    template = pod_templates(build_children(spec))["collector"]
    return manifest(resource(spec), "u-1", place, template, "ab12")


def test_a_reader_may_nothing_and_ends_by_itself() -> None:
    """It passes Pod Security `restricted`, has no token, goes with the pipeline, and no selector
    of ours takes it for a collector.
    """
    made = reader(Claimed("data-prod-collector-1", "prod-collector-1"))
    spec, [container] = made["spec"], made["spec"]["containers"]

    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["image"] == "c:1"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert made["metadata"]["labels"]["app.kubernetes.io/component"] == "files"


def test_a_reader_goes_where_its_volume_can_be_mounted() -> None:
    """To the node that holds it, or near those who share it; else where the scheduler says, by
    the collectors' own wishes.
    """
    options = {"nodeSelector": {"disk": "big"}, "tolerations": [{"operator": "Exists"}]}
    held = reader(Claimed("c", "m", "node-7"), options)["spec"]
    shared = reader(Claimed("c", "m", "", is_shared=True))["spec"]

    assert held["nodeName"] == "node-7"
    assert held["nodeSelector"] == {"disk": "big"}
    assert held["tolerations"] == [{"operator": "Exists"}]
    assert "podAffinity" in shared["affinity"]
    assert "affinity" not in held


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("it is not started yet", False)),
        ({"containerStatuses": [{"state": {"running": {}}}]}, (None, False)),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            ("ErrImagePull", True),
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
            ("ContainerCreating", False),
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]},
            ("0/2 nodes", False),
        ),
        ({"phase": "Failed", "reason": "Evicted"}, ("Evicted", True)),
    ],
)  # fmt: skip
def test_what_a_reader_waits_for_is_told(
    status: dict[str, Any], expected: tuple[str | None, bool]
) -> None:
    """And what will never come is not waited for."""
    assert waiting_for({"status": status}) == expected
