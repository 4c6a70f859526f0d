"""The fixture of tests that use an installed operator; a module names this one in its
`pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster_handle import Cluster
from cluster_operator import Operator, operator_of


@pytest.fixture(scope="module")
def operator(cluster: Cluster, images: dict[str, str]) -> Iterator[Operator]:
    """An operator for all namespaces, with the rights of the chart and no more, as long as the
    tests of a module run.
    """
    made = operator_of(cluster, images)
    yield made
    made.uninstall()
