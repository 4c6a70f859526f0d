"""Which volumes grow."""

from __future__ import annotations

import pytest

from logpipeline_operator.children.model import Manifest
from logpipeline_operator.claims import Growth, to_grow


def test_a_claim_that_is_too_small_grows() -> None:
    """A larger size in the resource reaches the claims that are there."""
    claims = [_claim("data-prod-collector-0", "10Gi"), _claim("data-prod-collector-1", "20Gi")]

    assert to_grow([_set("20Gi")], claims) == [Growth("data-prod-collector-0", "20Gi")]


@pytest.mark.parametrize("there", ["20Gi", "30Gi", "20480Mi", "1e20"])
def test_no_claim_is_made_smaller(there: str) -> None:
    """A size that is as large, or that we cannot read, stays."""
    assert to_grow([_set("20Gi")], [_claim("data-prod-collector-0", there)]) == []


@pytest.mark.parametrize("name", ["data-prod-collector-x", "other-0", "data-prod-collector-"])
def test_a_strangers_claim_is_left_alone(name: str) -> None:
    """Only the claims that the set itself made are its own."""
    assert to_grow([_set("20Gi")], [_claim(name, "1Gi")]) == []


def _set(storage: str) -> Manifest:
    template = {
        "metadata": {"name": "data"},
        "spec": {"resources": {"requests": {"storage": storage}}},
    }
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "prod-collector"},
        "spec": {"volumeClaimTemplates": [template]},
    }


def _claim(name: str, storage: str) -> Manifest:
    return {
        "metadata": {"name": name},
        "spec": {"resources": {"requests": {"storage": storage}}},
    }
