"""What is done with a pipeline's children, decided from manifests alone."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logpipeline_operator.children.model import Component, Desired, Manifest, NoImage
from logpipeline_operator.differences import (
    APPLIED_ANNOTATION,
    Changes,
    changes,
    differing,
    stamped,
)

OWNER = "11111111-1111-1111-1111-111111111111"


def test_what_is_not_there_is_made() -> None:
    """A missing child is applied, as a new one."""
    found = _changes([_child()], [])

    assert [(each.is_new, each.drift) for each in found.apply] == [(True, ())]


def test_what_is_as_wanted_is_left_alone() -> None:
    """Kubernetes' own additions are no difference: an idle pipeline writes nothing."""
    there = _live(_child())
    there["spec"] |= {"revisionHistoryLimit": 10, "template": there["spec"]["template"]}
    there["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    there["status"] = {"replicas": 3}

    assert _changes([_child()], [there]) == Changes()


def test_what_somebody_changed_is_put_right_and_named() -> None:
    """Drift is corrected, and the change says which fields it was."""
    there = _live(_child())
    there["spec"]["template"]["spec"]["containers"][0]["image"] = "evil:1"

    [wanted] = _changes([_child()], [there]).apply

    assert wanted.drift == ("spec.template.spec.containers[main].image",)


def test_a_change_of_ours_is_no_drift() -> None:
    """What the resource changed is applied without blaming anybody."""
    wanted = _child()
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = "new:2"

    [found] = _changes([wanted], [_live(_child())]).apply

    assert found.drift == ()


def test_a_field_that_is_no_longer_wanted_is_given_up() -> None:
    """What is left out is seen by the stamp, since nothing that is wanted differs."""
    before = _child()
    before["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "fast"}

    assert len(_changes([_child()], [_live(before)]).apply) == 1


def test_an_added_sidecar_is_no_drift() -> None:
    """Admission may put more containers into a pod; ours are what counts."""
    there = _live(_child())
    there["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh", "image": "m:1"})

    assert _changes([_child()], [there]) == Changes()


def test_what_is_no_longer_wanted_is_deleted() -> None:
    """A child of ours that nobody wants goes; one that is going already is left to it."""
    there = _live(_child("old"))
    going = _live(_child("going"))
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    found = _changes([], [there, going])

    assert [manifest["metadata"]["name"] for manifest in found.delete] == ["old"]


def test_what_could_not_be_decided_is_not_deleted() -> None:
    """A child goes only if it is known that it is not wanted; one that has lost its label may be of
    any component.
    """
    live = {name: _live(_child(name)) for name in ("table", "shipper", "unlabelled")}
    for name in ("table", "shipper"):
        live[name]["metadata"]["labels"]["app.kubernetes.io/component"] = name

    found = _changes([], list(live.values()), undecided=Component.TABLE)

    assert [manifest["metadata"]["name"] for manifest in found.delete] == ["shipper"]


def test_a_strangers_object_is_left_alone_and_named() -> None:
    """A namesake that is not ours is neither changed nor deleted."""
    there = _live(_child())
    there["metadata"]["ownerReferences"] = []
    there["metadata"]["labels"] = {}

    assert _changes([_child()], [there]) == Changes(foreign=("StatefulSet prod-collector",))
    assert _changes([], [there]) == Changes()


def test_a_strangers_object_is_adopted_when_we_are_asked_to() -> None:
    """With the annotation an object without a controller becomes ours."""
    there = _live(_child())
    there["metadata"]["ownerReferences"] = []
    there["metadata"]["labels"] = {}

    assert len(_changes([_child()], [there], may_adopt=True).apply) == 1


def test_another_controllers_object_is_never_adopted() -> None:
    """Two controllers of one object would undo each other's work for ever."""
    there = _live(_child())
    there["metadata"]["ownerReferences"] = [{"uid": "somebody", "controller": True}]

    assert _changes([_child()], [there], may_adopt=True).foreign


def test_what_an_earlier_pipeline_of_the_name_left_is_taken_again() -> None:
    """After --cascade=orphan a new resource of the name goes on with the old children."""
    there = _live(_child())
    there["metadata"]["ownerReferences"] = []

    assert _changes([_child()], [there]).foreign == ()
    assert len(_changes([], [there]).delete) == 1


def test_a_volume_that_cannot_change_makes_the_set_anew() -> None:
    """A StatefulSet's claims are fixed; its pods go on while it is replaced."""
    wanted = _child()
    wanted["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "20Gi"

    [found] = _changes([wanted], [_live(_child())]).apply

    assert found.replaces_uid == "uid-of-child"


def test_scaling_changes_the_set_in_place() -> None:
    """Nothing is made anew for what can be changed."""
    wanted = _child()
    wanted["spec"]["replicas"] = 7

    [found] = _changes([wanted], [_live(_child())]).apply

    assert found.replaces_uid == ""


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(_VALUES)
def test_nothing_differs_from_itself(value: Any) -> None:
    """Whatever is stored as it was sent is no difference."""
    assert list(differing(value, copy.deepcopy(value))) == []


def _changes(
    desired: list[Manifest],
    live: list[Manifest],
    *,
    may_adopt: bool = False,
    undecided: Component | None = None,
) -> Changes:
    reasons = {undecided: NoImage(undecided, "spec.image")} if undecided else {}
    wanted = Desired(manifests=tuple(desired), undecided=reasons)
    return changes(wanted, live, owner_uid=OWNER, pipeline="prod", may_adopt=may_adopt)


def _live(manifest: Manifest) -> Manifest:
    there = stamped(copy.deepcopy(manifest))
    assert APPLIED_ANNOTATION in there["metadata"]["annotations"]
    there["metadata"]["uid"] = "uid-of-child"
    return there


def _child(name: str = "prod-collector") -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": "logging",
            "labels": {
                "app.kubernetes.io/managed-by": "logpipeline-operator",
                "logpipeline.dev/pipeline": "prod",
            },
            "ownerReferences": [{"uid": OWNER, "controller": True}],
        },
        "spec": {
            "replicas": 3,
            "template": {"spec": {"containers": [{"name": "main", "image": "collector:1"}]}},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"resources": {"requests": {"storage": "10Gi"}}},
                }
            ],
        },
    }
