"""What others add is told from defaults by who manages it, and is not fought over for ever."""

from __future__ import annotations

from typing import Any

from logpipeline_operator.differences import (
    CORRECTIONS_MAX,
    LEFT_FOR_S,
    WITHIN_S,
    Changes,
    FieldConflicts,
    Wanted,
)
from logpipeline_operator.foreign_fields import ForeignField, foreign_fields, removal
from logpipeline_operator.queue import Key

KEY = Key("logging", "prod")


def service(selector: dict[str, str], manager: str = "") -> dict[str, Any]:
    """A Service; with a *manager*, as the API server has it after that one's change."""
    made: dict[str, Any] = {
        "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": selector},
    }  # fmt: skip
    if manager:
        fields: dict[str, Any] = {"f:spec": {"f:selector": {}}}
        made["metadata"] |= {
            "resourceVersion": "7",
            "managedFields": [{"manager": manager, "fieldsV1": fields}],
        }
        made["spec"]["sessionAffinity"] = "None"
    return made


def test_label_in_a_selector_is_named_with_its_manager() -> None:
    """What we manage ourselves, and what the API server fills in, is none."""
    wanted, there = service({"app": "x"}), service({"app": "x", "track": "canary"}, "kubectl-edit")
    [found] = foreign_fields(wanted, there)

    assert (found.path, found.manager) == ("spec.selector.track", "kubectl-edit")
    assert removal(there, (found,))[-1] == {"op": "remove", "path": "/spec/selector/track"}
    assert foreign_fields(wanted, service({"app": "x", "a": "b"}, "logpipeline-operator")) == ()


def added() -> Changes:
    """A field that a manager set, and that is to be taken out."""
    found = ForeignField(
        path="spec.selector.a", manager="other", why="", pointer="/spec/selector/a"
    )
    wanted = Wanted(manifest=service({}), foreign_fields=(found,), is_as_applied=True)
    return Changes(apply=(wanted,))


def test_field_that_is_set_again_and_again_is_left_for_a_while() -> None:
    """After some corrections within minutes; an hour later it is tried again."""
    now = 0.0
    contests = FieldConflicts(clock=lambda: now)
    for _ in range(CORRECTIONS_MAX):
        changes, lost = contests.settle(KEY, added())
        assert (len(changes.apply), lost) == (1, [])
    changes, lost = contests.settle(KEY, added())
    assert changes.apply == ()
    assert [(each.child, each.manager) for each in lost] == [("Service s", "other")]

    now += LEFT_FOR_S
    assert contests.settle(KEY, added())[1] == []


def test_field_that_is_set_now_and_then_is_always_put_right() -> None:
    """Some corrections a day are no contest."""
    now = 0.0
    contests = FieldConflicts(clock=lambda: now)
    for _ in range(3 * CORRECTIONS_MAX):
        assert contests.settle(KEY, added())[1] == []
        now += WITHIN_S / 2


def test_change_of_ours_is_applied_beside_a_contest() -> None:
    """What another manager does keeps nothing of the resource's changes back."""
    contests = FieldConflicts(clock=lambda: 0.0)
    for _ in range(CORRECTIONS_MAX):
        contests.settle(KEY, added())
    [wanted] = added().apply
    ours = Changes(apply=(Wanted(manifest=wanted.manifest, foreign_fields=wanted.foreign_fields),))

    changes, lost = contests.settle(KEY, ours)
    assert len(changes.apply) == len(lost) == 1
    assert changes.apply[0].foreign_fields == ()
