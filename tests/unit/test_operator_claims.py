"""Which volumes grow, and what the server that wrote to them began with."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.child_manifests import resource
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children.model import ACCOUNTS_LABEL, TLS_LABEL, Manifest
from logpipeline_operator.volume_claims import (
    Growth,
    began_with_tls,
    may_have_accounts,
    of_servers_bytes,
    to_grow,
)


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


@pytest.mark.parametrize(
    ("made", "nats", "may"),
    [
        ([], {}, True),
        ([True, True], {}, True),
        ([True, False], {}, False),
        ([False], {}, False),
        ([], {"servers": ["nats://a:4222"]}, False),
        ([], {"jsDomain": "hub"}, False),
        ([True], {"jsDomain": "hub"}, True),
        ([False], {"jsDomain": "hub"}, False),
    ],
)
def test_a_server_keeps_what_it_began_with(
    made: list[bool], nats: dict[str, Any], may: bool
) -> None:
    """Streams of a server without accounts are not found by one with accounts."""
    claims = [_nats_claim(has_accounts=each) for each in made]
    others = [{"metadata": {"name": "data-prod-collector-0", "labels": {COMPONENT_LABEL: "c"}}}]
    pipeline = resource({"nats": nats})

    assert may_have_accounts(pipeline, None, [*claims, *others]) is may
    # Its pods, and so its claims, may still be to come.
    server = {"spec": {"volumeClaimTemplates": claims}}
    assert may_have_accounts(pipeline, server, others) is may


@pytest.mark.parametrize(
    ("made", "began"), [([], True), ([True, True], True), ([True, False], False), ([False], False)]
)
def test_a_server_that_began_without_tls_is_known_by_its_claims(
    made: list[bool], began: bool
) -> None:
    """It goes on without, whatever else of it is deleted: clients of others know nothing of TLS."""
    claims = [
        {"metadata": {"labels": {COMPONENT_LABEL: "nats", **({TLS_LABEL: "true"} if each else {})}}}
        for each in made
    ]

    assert began_with_tls(None, claims) is began
    assert began_with_tls({"spec": {"volumeClaimTemplates": claims}}, []) is began


@pytest.mark.parametrize(
    ("sizes", "found"),
    [([], 0), (["20Gi"], 20 * 2**30), (["20Gi", "10Gi"], 10 * 2**30), (["1e20"], 0)],
)
def test_a_server_has_the_room_of_its_smallest_volume(sizes: list[str], found: int) -> None:
    """Volumes of collectors do not count."""
    claims = [{**_claim("data-prod-collector-0", "1Gi")}]
    claims += [{**_nats_claim(has_accounts=True), **_size(size)} for size in sizes]

    assert of_servers_bytes(claims) == found


def _nats_claim(*, has_accounts: bool) -> Manifest:
    labels = {COMPONENT_LABEL: "nats", **({ACCOUNTS_LABEL: "true"} if has_accounts else {})}
    return {"metadata": {"name": "data-prod-nats-0", "labels": labels}}


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
    return {"metadata": {"name": name}, **_size(storage)}


def _size(storage: str) -> Manifest:
    return {"spec": {"resources": {"requests": {"storage": storage}}}}
