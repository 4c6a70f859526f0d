"""The observation of a pipeline: the facts of one reconciliation, and the objects of the cluster
that they are read from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from logpipeline_operator.children import names
from logpipeline_operator.children.model import Component, Desired, Manifest
from logpipeline_operator.cluster.kinds import SPARK_APPLICATION
from logpipeline_operator.differences import Place
from logpipeline_operator.pod_namespaces import PodNamespaces
from logpipeline_operator.status import Facts, Workload, pods


@dataclass(slots=True, kw_only=True)
class Observation(Facts):
    """One reconciliation of *resource*. What was not reached is None or empty."""

    resource: Manifest
    children: dict[Place, Manifest] = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)
    # The EndpointSlices of the pipeline's Services.
    slices: list[Manifest] = field(default_factory=list)
    # The errors of controllers that cannot make their pods, by the controller's title.
    refusals: dict[str, str] = field(default_factory=dict)
    pod_namespaces: PodNamespaces = field(default_factory=PodNamespaces)
    # Collectors that there must be now: more than wanted while some hand over.
    replicas: int | None = None
    desired: Desired | None = None
    # The titles of children whose names other owners' objects have.
    foreign: list[str] = field(default_factory=list)

    def child(self, kind: str, name: str) -> Manifest | None:
        """Return a child as it is in the cluster."""
        return self.children.get((kind, name))

    def concluded(self) -> Observation:
        """Return this observation with the workloads and the findings that its objects show."""
        applications = self._applications()
        desired = self.desired.manifests if self.desired else ()
        findings = [
            *self.findings,
            *pods.problems(self.pods, self.claims, self.refusals),
            *pods.endpoint_problems(desired, self.slices, self.pods),
            *pods.spark_problems(applications),
        ]
        pipeline = self.pipeline
        if pipeline is None:
            return replace(self, findings=findings)
        wanted = self.replicas if self.replicas is not None else pipeline.spec.collectors.replicas
        servers = pipeline.spec.nats.managed.replicas
        server = self._stateful_set(names.nats(pipeline), Component.NATS, servers)
        daemon_set = self.child("DaemonSet", names.shipper(pipeline))
        shippers = pods.daemon_set(daemon_set, pods.nodes_without(self.pods))
        table = (
            pods.spark_application(applications)
            if pipeline.spec.table.runner == "sparkApplication"
            else self._stateful_set(names.table(pipeline), Component.TABLE, 1)
        )
        return replace(
            self,
            findings=findings,
            collectors=self._stateful_set(names.collector(pipeline), Component.COLLECTOR, wanted),
            shippers=pods.without_ending(shippers, self.pods, Component.SHIPPER),
            table=table,
            nats=None if pipeline.spec.nats.servers else server or Workload(wanted=servers),
        )

    def _stateful_set(self, name: str, component: Component, wanted: int) -> Workload | None:
        workload = pods.stateful_set(self.child("StatefulSet", name), wanted=wanted)
        return pods.without_ending(workload, self.pods, component)

    def _applications(self) -> list[Manifest]:
        return [each for (kind, _), each in self.children.items() if kind == SPARK_APPLICATION]
