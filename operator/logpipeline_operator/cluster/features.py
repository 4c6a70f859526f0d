"""What this cluster can do, as far as children depend on it; looked up once in a while, since
clusters are upgraded and definitions are added while the operator runs.
"""

from __future__ import annotations

import logging
import math
import re
import time
from dataclasses import dataclass
from http import HTTPStatus

from logpipeline.spec.api import GROUP
from logpipeline_operator.children import table
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import Kind, kind, kind_in

log = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0
# Older ones drop the field without a word, and it would be sent to them for ever.
MAX_UNAVAILABLE_SINCE = (1, 35)
# Tokens of pods name their node.
NODE_TOKENS_SINCE = (1, 32)
_NOTHING = f"{GROUP}/none"


@dataclass(slots=True)
class Features:
    """The features of *cluster*."""

    cluster: Cluster
    has_pod_monitors: bool = False
    has_max_unavailable: bool = False
    # The API of SparkApplications, empty where there is none.
    spark_api: str = ""
    # What proves the tokens of this cluster's pods, empty where these do not name their node or the
    # operator may not know.
    token_keys: str = ""
    _looked: float = -math.inf

    async def refresh(self, namespace: str) -> None:
        """Look again when it is time; *namespace* is one that we may look into."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        version = parse_version(await self.cluster.version())
        self.has_max_unavailable = version >= MAX_UNAVAILABLE_SINCE
        if version >= NODE_TOKENS_SINCE:
            # What was known stays: an API server that cannot tell now has the same keys.
            self.token_keys = await self._token_keys() or self.token_keys
        self.has_pod_monitors = await self._has(kind("PodMonitor"), namespace)
        self.spark_api = ""
        for api in table.SPARK_APIS:
            if await self._has(kind_in(api, table.SPARK_APPLICATION), namespace):
                self.spark_api = api
                break
        self._looked = time.monotonic()

    def forget(self) -> None:
        """Look again at the next refresh: something that was there is gone."""
        self._looked = -math.inf

    async def _token_keys(self) -> str:
        try:
            return await self.cluster.token_keys()
        except ClusterError as error:
            # Any other failure passes, and must not take a callout away that is there.
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            log.warning(
                "the keys of pods' tokens cannot be read; where none were known, all shippers of a "
                "managed server share one user",
                extra={"reason": str(error)},
            )
            return ""

    async def _has(self, wanted: Kind, namespace: str) -> bool:
        try:
            await self.cluster.list(wanted, namespace, _NOTHING)
        except ClusterError:
            # Not known here, or not ours to make.
            return False
        return True


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of ``v1.34.4``, (0, 0) where it is none."""
    found = re.match(r"v(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
