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
# Older API servers drop the field silently, and each comparison would send it again.
MAX_UNAVAILABLE_SINCE = (1, 35)
# Tokens of pods name their node.
NODE_TOKENS_SINCE = (1, 32)
_NOTHING = f"{GROUP}/none"


@dataclass(slots=True)
class FeatureDiscovery:
    """Discovers the features of *cluster*; *found* is the latest result."""

    cluster: Cluster
    found: Features = field(default_factory=Features)
    _looked: float = -math.inf

    async def refresh(self, namespace: str) -> None:
        """Discover again if it is time; *namespace* is one that the operator may read."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        version = parse_version(await self.cluster.version())
        token_keys = self.found.token_keys
        if version >= NODE_TOKENS_SINCE:
            # The former keys stay: an API server that cannot answer now still has the same ones.
            token_keys = await self._token_keys() or token_keys
        self.found = Features(
            spark_api=await self._spark_api(namespace),
            has_pod_monitors=await self._has(kind("PodMonitor"), namespace),
            has_max_unavailable=version >= MAX_UNAVAILABLE_SINCE,
            token_keys=token_keys,
        )
        self._looked = time.monotonic()

    def forget(self) -> None:
        """Discover again at the next refresh: something that was there is gone."""
        self._looked = -math.inf

    async def _spark_api(self, namespace: str) -> str:
        for api in SPARK_APIS:
            if await self._has(kind_in(api, SPARK_APPLICATION), namespace):
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

    async def _has(self, wanted: Kind, namespace: str) -> bool:
        try:
            await self.cluster.list(wanted, namespace, _NOTHING)
        except ClusterError:
            # The kind is not installed here, or the operator has no right to it.
            return False
        return True


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as ``v1.34.4``; (0, 0) for any other text."""
    found = re.match(r"v(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
