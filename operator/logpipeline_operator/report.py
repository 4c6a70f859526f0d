"""Writes the status and the events of a pipeline, when they say something new."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from logpipeline.spec.api import API_VERSION
from logpipeline_operator.children.model import MANAGED_BY, Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError, NotFound
from logpipeline_operator.cluster.objects import time_text
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.observation import Observation
from logpipeline_operator.settings import Settings
from logpipeline_operator.status import (
    Event,
    events_of,
    is_changed,
    is_settled,
    news_of,
    status_of,
)
from logpipeline_operator.status.text import bounded, clean

log = logging.getLogger(__name__)


class Reporter:
    """Writes one status for each reconciliation, and only when it says something new."""

    def __init__(self, cluster: Cluster, settings: Settings, metrics: OperatorMetrics) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics

    async def report(self, seen: Observation) -> bool:
        """Write status and events of *seen*; return whether there is nothing to wait for.

        Raises:
            ClusterError, ClusterAway: it was not written; the next reconciliation does it.
        """
        facts = seen.concluded()
        previous = seen.resource.get("status") or {}
        status = status_of(facts, previous, datetime.now(UTC))
        metadata = seen.resource["metadata"]
        self._measure(seen, status)
        if is_changed(previous, status):
            try:
                manifest = _status_manifest(metadata, status)
                seen.resource = await self._cluster.apply(manifest, subresource="status")
            except NotFound:
                # The resource was deleted meanwhile: there is nothing to report on any more.
                return True
            self._metrics.writes.labels("status").inc()
        for event in (*events_of(previous, status), *news_of(facts)):
            await self._send(seen.resource, event)
        return is_settled(status)

    async def report_end(self, resource: Manifest, message: str) -> None:
        """Write an event about the end of a pipeline."""
        await self._send(
            resource, Event(type="Normal", reason="CleanedUp", message=bounded(clean(message)))
        )

    async def _send(self, resource: Manifest, event: Event) -> None:
        now = time_text(datetime.now(UTC))
        metadata = resource["metadata"]
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{metadata['name']}.",
                "name": "",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": MANAGED_BY},
            "reportingComponent": MANAGED_BY,
            "reportingInstance": self._settings.identity,
        }
        try:
            await self._cluster.create(manifest)
        except ClusterError as error:
            # Nothing depends on an event, and a namespace that is being deleted takes none.
            log.debug("Kubernetes refused an event", extra={"why": str(error)})
        else:
            self._metrics.writes.labels("event").inc()

    def _measure(self, seen: Observation, status: Mapping[str, Any]) -> None:
        metadata = seen.resource["metadata"]
        place = metadata["namespace"], metadata["name"]
        self._metrics.checked.labels(*place).set(time.time())
        self._metrics.show(*place, status)
        if seen.jetstream is not None:
            lag = sum(state.lag_bytes for state in seen.jetstream.partitions)
            self._metrics.lag_bytes.labels(*place).set(lag)
            self._metrics.readers_missed.labels(*place).set(seen.jetstream.readers_missed)
            if seen.jetstream.table is not None:
                missed = seen.jetstream.table.missed_messages
                self._metrics.table_missed.labels(*place).set(missed)


def _status_manifest(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "LogPipeline",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": dict(status),
    }
