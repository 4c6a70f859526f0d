"""What the operator finds out about a cluster before it decides on children."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from logpipeline_operator.children import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.features import FeatureDiscovery
from logpipeline_operator.cluster.kinds import SPARK_APACHE, SPARK_KUBEFLOW, Kind


@dataclass
class Answers:
    """An API server that answers the list of a kind with a status, by the kind's API; 200 means
    that it has the kind.
    """

    statuses: dict[str, int] = field(default_factory=dict)

    async def version(self) -> str:
        """An old one, whose tokens do not name nodes."""
        return "v1.30.0"

    async def list(self, kind: Kind, namespace: str, selector: str) -> tuple[list[Manifest], str]:
        """No object."""
        status = self.statuses.get(kind.group_version, 404)
        if status != 200:
            raise ClusterError(status, "", "refused")
        return [], ""


async def spark_api(statuses: dict[str, int]) -> str | None:
    """The API of SparkApplications that is found."""
    discovery = FeatureDiscovery(cast("Cluster", Answers(statuses)))
    await discovery.refresh("logging")
    return discovery.found.spark_api


@pytest.mark.parametrize("status", [403, 404])
async def test_a_kind_that_is_not_there_or_not_allowed_is_not_used(status: int) -> None:
    """Without it the cluster, or the operator's rights, must change first."""
    assert await spark_api({SPARK_APACHE: status}) == ""
    assert await spark_api({SPARK_APACHE: status, SPARK_KUBEFLOW: 200}) == SPARK_KUBEFLOW


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_cannot_say_is_not_taken_for_one_without(status: int) -> None:
    """The other API is not used either: a table would then have two drivers."""
    assert await spark_api({SPARK_APACHE: status, SPARK_KUBEFLOW: 200}) is None


async def test_what_was_not_found_out_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is known, only some minutes later."""
    answers, now = Answers({SPARK_APACHE: 503}), 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    discovery = FeatureDiscovery(cast("Cluster", answers))
    await discovery.refresh("logging")
    answers.statuses = {SPARK_APACHE: 200}
    now += 20
    await discovery.refresh("logging")
    found = discovery.found.spark_api
    answers.statuses = {}
    now += 20
    await discovery.refresh("logging")

    assert (found, discovery.found.spark_api) == (SPARK_APACHE, SPARK_APACHE)
