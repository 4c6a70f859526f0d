"""Selecting namespaces by labels: who narrows can only narrow, and the API server is asked so."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.spec.pods import LabelRequirement, LabelSelector, both, query_of

BLUE = LabelSelector(match_labels={"team": "blue", "a.b/c": ""})
NOT_SECRET = LabelSelector(
    match_labels={"team": "blue"},
    match_expressions=(
        LabelRequirement(key="secret", operator="DoesNotExist"),
        LabelRequirement(key="stage", operator="NotIn", values=("dev", "test")),
        LabelRequirement(key="owner", operator="Exists"),
    ),
)


def test_a_selector_is_asked_for_as_kubectl_would() -> None:
    """Each word of it, in the API server's own way."""
    assert query_of(BLUE) == "a.b/c in (),team in (blue)"
    assert query_of(NOT_SECRET) == "team in (blue),!secret,stage notin (dev,test),owner"


def test_of_two_selectors_both_have_to_hold() -> None:
    """What both say is said once, and nothing of either is left out."""
    together = both(BLUE, NOT_SECRET)

    assert together is not None
    assert query_of(together) == ("a.b/c in (),team in (blue),!secret,stage notin (dev,test),owner")


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(None, None, None), (BLUE, None, BLUE), (None, BLUE, BLUE)],
)
def test_who_says_nothing_takes_nothing_away(first: Any, second: Any, found: Any) -> None:
    """A class that allows all leaves the choice to the pipeline, and the other way round."""
    assert both(first, second) == found
