"""Discovers the features of a cluster that children depend on. It does so again now and then, since
clusters are upgraded and definitions are added while the operator runs.
"""

from __future__ import annotations

import logging
import math
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from logpipeline.spec.api import GROUP
from logpipeline_operator.children.model import Features
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import SPARK_APIS, SPARK_APPLICATION, Kind, kind, kind_in

log = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0
# Something could not be found out: an API server that is overloaded should not be asked more often.
LOOK_AGAIN_S = 15.0
# Older API servers drop the field silently, and each comparison would send it again.
MAX_UNAVAILABLE_SINCE = (1, 35)
# Tokens of pods name their node.
NODE_TOKENS_SINCE = (1, 32)
_NOTHING = f"{GROUP}/none"


@dataclass(slots=True)
class FeatureDiscovery:
    """Discovers the features of *cluster*; *found* is the latest result."""

    cluster: Cluster
    found: Features = field(default_factory=lambda: Features(spark_api=None))
    _due: float = -math.inf

    async def refresh(self, namespace: str) -> None:
        """Discover again if it is time; *namespace* is one that the operator may read."""
        if time.monotonic() < self._due:
            return
        version = parse_version(await self.cluster.version())
        token_keys = self.found.token_keys
        if version >= NODE_TOKENS_SINCE:
            # The former keys stay: an API server that cannot answer now still has the same ones.
            token_keys = await self._token_keys() or token_keys
        spark_api = await self._spark_api(namespace)
        has_pod_monitors = await self._has(kind("PodMonitor"), namespace)
        self.found = Features(
            spark_api=spark_api,
            has_pod_monitors=bool(has_pod_monitors),
            has_max_unavailable=version >= MAX_UNAVAILABLE_SINCE,
            token_keys=token_keys,
        )
        is_known = spark_api is not None and has_pod_monitors is not None
        self._due = time.monotonic() + (LOOK_EVERY_S if is_known else LOOK_AGAIN_S)

    def forget(self) -> None:
        """Discover again at the next refresh: something that was there is gone."""
        self._due = -math.inf

    async def _spark_api(self, namespace: str) -> str | None:
        for api in SPARK_APIS:
            has_api = await self._has(kind_in(api, SPARK_APPLICATION), namespace)
            if has_api is None:
                return None
            if has_api:
                return api
        return ""

    async def _token_keys(self) -> str:
        try:
            return await self.cluster.token_keys()
        except ClusterError as error:
            # Any other failure is temporary, and must not remove a callout that is there.
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            log.warning(
                "the keys of pods' tokens cannot be read; unless they were read before, all "
                "shippers of a managed server share one user",
                extra={"reason": str(error)},
            )
            return ""

    async def _has(self, wanted: Kind, namespace: str) -> bool | None:
        """Return whether the kind is installed, and the operator has a right to it; None if that is
        not known. The former answer would not help: the kind cannot be read now.
        """
        try:
            await self.cluster.list(wanted, namespace, _NOTHING)
        except ClusterError as error:
            if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                return False
            log.warning(
                "it cannot be found out whether the cluster has a kind; what was made of it stays",
                extra={"kind": wanted.name, "reason": str(error)},
            )
            return None
        return True


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as ``v1.34.4``; (0, 0) for any other text."""
    found = re.match(r"v(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
