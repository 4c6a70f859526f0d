"""Turns what a look saw into the object's status and events, and writes them when they changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from logpipeline.spec import LogPipeline, SpecError
from logpipeline.spec.api import API_VERSION
from logpipeline_operator.child_objects import Failure
from logpipeline_operator.children import names, table
from logpipeline_operator.children.model import Component, Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError, NotFound
from logpipeline_operator.jetstream import JetStreamSeen
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.pod_namespaces import Reach
from logpipeline_operator.settings import Settings
from logpipeline_operator.status import (
    Event,
    Facts,
    Finding,
    JetStreamFacts,
    Mode,
    Sync,
    Workload,
    errors,
    events_of,
    is_changed,
    is_settled,
    news_of,
    pods,
    status_of,
)
from logpipeline_operator.status.text import bounded, clean

log = logging.getLogger(__name__)

COMPONENT = "logpipeline-operator"


@dataclass(slots=True)
class News:
    """What happened once and is told by an event alone: the next look finds no trace of it."""

    # Children that others had changed, and that were put right.
    drifted: list[str] = field(default_factory=list)
    # Which certificates of the managed server were made, and why.
    renewed: str = ""
    # Which logins were refused.
    refused_logins: str = ""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One look at the object *resource*."""

    resource: Manifest
    pipeline: LogPipeline | None = None
    mistakes: SpecError | None = None
    # The part for one machine, which means nothing here.
    has_local: bool = False
    is_paused: bool = False
    is_unmanaged: bool = False
    is_read_only: bool = False
    secret_problem: str = ""
    nats_error: Exception | None = None
    # A permission that the server denied on the way: to the one who waits it is mere silence.
    denied: str = ""
    jetstream: JetStreamSeen | None = None
    children: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)
    # Where the pipeline's Services lead.
    slices: list[Manifest] = field(default_factory=list)
    # Why controllers cannot make their pods, by the controller's title.
    refusals: dict[str, str] = field(default_factory=dict)
    # The namespaces whose pods shippers read, where labels of namespaces say it.
    reach: Reach = field(default_factory=Reach)
    sync: Sync = field(default_factory=lambda: Sync(why_unknown="it was not looked at yet"))
    # Collectors that there are to be now: more than wanted while some hand over.
    replicas: int | None = None
    # Children that there should be; empty where nothing could be decided.
    desired: tuple[Manifest, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    news: News = field(default_factory=News)
    # What would be written, where nothing may be.
    pending: list[str] = field(default_factory=list)

    @property
    def may_write(self) -> bool:
        """Whether this look may change anything but the status."""
        return not (self.is_paused or self.is_unmanaged or self.is_read_only)

    def child(self, kind: str, name: str) -> Manifest | None:
        """Return a live child."""
        return self.children.get((kind, name))


class Reporter:
    """Writes one status for each look, and only when it says something new."""

    def __init__(self, cluster: Cluster, settings: Settings, metrics: OperatorMetrics) -> None:
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics

    async def report(self, seen: Seen) -> bool:
        """Write status and events of what was *seen*; return whether all is as it should be.

        Raises:
            ClusterError, ClusterAway: it was not written; the next look does it.
        """
        facts = facts_of(seen, version=self._settings.version, operator=self._settings.operator)
        previous = seen.resource.get("status") or {}
        now = datetime.now(UTC)
        status = status_of(facts, previous, now)
        metadata = seen.resource["metadata"]
        self._measure(metadata, seen, status)
        if is_changed(previous, status):
            try:
                manifest = _status_manifest(metadata, status)
                seen.resource = await self._cluster.apply(manifest, subresource="status")
            except NotFound:
                # Deleted meanwhile: nobody is left to tell.
                return True
            self._metrics.writes.labels("status").inc()
        for event in (*events_of(previous, status), *news_of(facts)):
            await self._send(seen.resource, event)
        return is_settled(status)

    async def tell(self, resource: Manifest, message: str) -> None:
        """Write an event about the end of a pipeline."""
        await self._send(
            resource, Event(type="Normal", reason="CleanedUp", message=bounded(clean(message)))
        )

    async def _send(self, resource: Manifest, event: Event) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._settings.identity,
        }
        try:
            await self._cluster.create(manifest)
        except ClusterError as error:
            # An event is a courtesy: a namespace that ends takes none, and nothing hangs on it.
            log.debug("an event was not taken", extra={"why": str(error)})
        else:
            self._metrics.writes.labels("event").inc()

    def _measure(self, metadata: Mapping[str, Any], seen: Seen, status: Mapping[str, Any]) -> None:
        place = metadata["namespace"], metadata["name"]
        self._metrics.checked.labels(*place).set(time.time())
        ready: Any = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
        self._metrics.ready.labels(*place).set(1.0 if ready.get("status") == "True" else 0.0)
        if seen.jetstream is not None:
            lag = sum(state.lag_bytes for state in seen.jetstream.partitions)
            self._metrics.lag_bytes.labels(*place).set(lag)
            if seen.jetstream.table is not None:
                missed = seen.jetstream.table.missed_messages
                self._metrics.table_missed.labels(*place).set(missed)


def facts_of(seen: Seen, *, version: str, operator: str) -> Facts:
    """Return what was *seen* as the status reads it."""
    metadata = seen.resource["metadata"]
    facts = Facts(
        operator=operator,
        generation=int(metadata.get("generation", 0)),
        version=version,
        name=str(metadata["name"]),
        pipeline=seen.pipeline,
        mistakes=seen.mistakes,
        has_local=seen.has_local,
        mode=_mode(seen),
        findings=tuple(_findings(seen)),
        jetstream=_jetstream(seen),
        drifted=tuple(seen.news.drifted),
        renewed=seen.news.renewed,
        refused_logins=seen.news.refused_logins,
        pending=tuple(seen.pending),
        sync=seen.sync,
    )
    pipeline = seen.pipeline
    if pipeline is None:
        return facts
    collectors = seen.child("StatefulSet", names.collector(pipeline))
    nats = seen.child("StatefulSet", names.nats(pipeline))
    servers = pipeline.spec.nats.managed.replicas
    wanted = seen.replicas if seen.replicas is not None else pipeline.spec.collectors.replicas
    shippers = pods.daemon_set(
        seen.child("DaemonSet", names.shipper(pipeline)), pods.nodes_without(seen.pods)
    )
    server = pods.stateful_set(nats, wanted=servers) or Workload(wanted=servers)
    return replace(
        facts,
        collectors=pods.without_ending(
            pods.stateful_set(collectors, wanted=wanted), seen.pods, Component.COLLECTOR
        ),
        shippers=pods.without_ending(shippers, seen.pods, Component.SHIPPER),
        table=_table(seen, pipeline),
        nats=(
            None
            if pipeline.spec.nats.servers
            else pods.without_ending(server, seen.pods, Component.NATS)
        ),
    )


def _table(seen: Seen, pipeline: LogPipeline) -> Workload | None:
    if pipeline.spec.table.runner == "sparkApplication":
        return pods.spark_application(_applications(seen))
    workload = pods.stateful_set(seen.child("StatefulSet", names.table(pipeline)), wanted=1)
    return pods.without_ending(workload, seen.pods, Component.TABLE)


def _applications(seen: Seen) -> list[Manifest]:
    return [each for (kind, _), each in seen.children.items() if kind == table.SPARK_APPLICATION]


def _mode(seen: Seen) -> Mode:
    if seen.is_read_only:
        return Mode.READ_ONLY
    if seen.is_unmanaged:
        return Mode.UNMANAGED
    return Mode.PAUSED if seen.is_paused else Mode.ACTIVE


def _findings(seen: Seen) -> list[Finding]:
    found = list(seen.findings)
    if seen.secret_problem:
        found.append(errors.of_secret(seen.secret_problem))
    if seen.nats_error is not None:
        found.append(errors.of_nats(seen.nats_error, denied=seen.denied))
    found += [errors.of_foreign_child(child) for child in seen.foreign]
    found += [
        errors.of_kubernetes(
            failure.child, status=failure.status, reason=failure.reason, message=failure.message
        )
        for failure in seen.failures
    ]
    found += pods.problems(seen.pods, seen.claims, seen.refusals)
    found += pods.endpoint_problems(seen.desired, seen.slices, seen.pods)
    found += pods.spark_problems(_applications(seen))
    return found


def _jetstream(seen: Seen) -> JetStreamFacts | None:
    there = seen.jetstream
    if there is None:
        return None
    return JetStreamFacts(
        plan=there.plan,
        report=there.report,
        assignment=there.assignment,
        partitions=there.partitions,
        commit_ages_s=there.commit_ages_s(time.time_ns()),
        table=there.table,
        behind=there.behind,
    )


def _status_manifest(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "LogPipeline",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": dict(status),
    }
