"""The fixtures of tests that use an installed operator; a module names this one in its
`pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import installed_operator
from cluster.handle import Cluster
from cluster.installed_operator import Operator


@pytest.fixture(scope="session")
def is_left_behind(cluster: Cluster) -> Iterator[None]:
    """What is used through this leaves no operator behind in a cluster that goes on."""
    yield
    installed_operator.leave(cluster)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, images: dict[str, str], is_left_behind: None) -> Iterator[Operator]:
    """An operator for all namespaces, with the rights of the chart and no more. All modules share
    it; the namespaces that a module made with it go when its tests have run.
    """
    with installed_operator.shared(cluster, images) as made:
        yield made
