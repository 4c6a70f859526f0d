"""Tests of the operator on a real API server, without nodes: none of them needs a pod that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api_server import shared
from cluster.fixtures import given_cluster
from cluster.handle import Cluster
from cluster.installed_operator import define


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The API server of this run, which knows the resource; all tests share it."""
    found = given_cluster() or shared.shared()
    define(found)
    return found


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """An API server of this test alone, for what would disturb all others."""
    with shared.another() as made:
        yield made
