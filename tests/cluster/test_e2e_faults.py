"""Collectors, servers and nodes come and go while fifty hosts log: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from cluster.busy_hosts import BusyHosts, hosts_of
from cluster.frozen import processes_of, stopped
from cluster.handle import Cluster
from cluster.installed_operator import Operator
from cluster.pipelines import Pipeline, create
from cluster.workload import FOLDER, SEED, arrived, beside
from logpipeline_demo.expected import Expected
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

HOSTS = 50
PARTITIONS = 10
LINES_PER_SECOND = 400.0
# What flows between two troubles, so that the first one has an effect.
MORE_LINES = 1_000
# Small enough that files rotate while they are read.
ROTATE_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def namespace(operator: Operator) -> str:
    """A namespace that the tests of this module share."""
    return operator.new_namespace()


@dataclass(frozen=True, slots=True)
class Flow:
    """Hosts that log all the time, and the pipeline that takes it."""

    pipeline: Pipeline
    hosts: BusyHosts

    def pods_beside(self) -> set[str]:
        """The names of the pods that ship the logs of the hosts."""
        found = self.pipeline.cluster.get(
            "pods", self.pipeline.here, f"--selector=app={self.pipeline.name}-beside"
        )
        return {pod["metadata"]["name"] for pod in found["items"]}

    async def goes_on(self) -> None:
        """Wait until the hosts have written a good deal more."""
        enough = self.hosts.lines + MORE_LINES
        await eventually(lambda: self.hosts.lines > enough, what="more lines")

    async def has_arrived(self) -> None:
        """Hold the hosts' breath until all that they wrote is in files: once, and in order."""
        with self.hosts.held():
            expected = Expected.read(self.hosts.ledger_path)
            verdict = await arrived([self.pipeline], expected, is_ours=is_busy(self.hosts))
        assert verdict.is_clean, f"{verdict.summary()}\n{verdict.explain()}"


@pytest.fixture(scope="module")
def flow(
    cluster: Cluster, operator: Operator, namespace: str, images: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:  # fmt: skip
    """Fifty hosts on every partition, and a pipeline of one collector."""
    spec = {
        "partitions": PARTITIONS,
        "nats": {"managed": {"storage": "2Gi"}},
        "collectors": {
            "replicas": 1,
            "drainTimeoutSeconds": 30,
            "takeoverAfter": "5s",
            # Volumes of this cluster are folders of nodes: who is evicted waits for its node.
            "podDisruptionBudget": {"maxUnavailable": "100%"},
        },
        # Only the hosts beside are looked at: nodes have logs of others as well.
        "shippers": {"match": [{"select": {"namespaces": [namespace]}}]},
    }
    pipeline = create(cluster, namespace, "flow", spec)
    pipeline.wait_ready()
    node = cluster.nodes[-1]
    root = cluster.data_dir(node) / FOLDER / namespace
    hosts = hosts_of(HOSTS, seed=SEED, partitions=PARTITIONS)
    busy = BusyHosts(
        {root / "hosts": hosts}, tmp_path_factory.mktemp("flow") / "ledger", seed=SEED,
        lines_per_second=LINES_PER_SECOND, rotate_bytes=ROTATE_BYTES,
    )  # fmt: skip
    there = f"/var/lib/{FOLDER}/{namespace}"
    cluster.apply(
        *beside(
            pipeline, images["shipper"], node=node,
            hosts_folder=f"{there}/hosts", below=f"{there}/state",
        )
    )  # fmt: skip
    busy.start()
    try:
        yield Flow(pipeline, busy)
    finally:
        busy.close()


def is_busy(busy: BusyHosts) -> Callable[[str], bool]:
    """Whether a place is that of one of the busy hosts."""
    names = {source.host for source in busy.sources}
    return lambda place: place.split("/")[0] in names


async def test_scaling_moves_partitions_without_loss(flow: Flow) -> None:
    """From one collector to four and back to two while lines flow: each line is in the files of one
    of them, once, and what is scaled away gives up its partitions first.
    """
    pipeline = flow.pipeline
    for replicas in (4, 2):
        pipeline.kubectl("scale", f"logpipeline/{pipeline.name}", f"--replicas={replicas}")
        pipeline.wait_for(f"jsonpath={{.status.collectors.readyReplicas}}={replicas}")
        pipeline.wait_ready()
        await flow.goes_on()

    await flow.has_arrived()
    assert sorted(pipeline.pods("collector")) == ["flow-collector-0", "flow-collector-1"]
    assert len(pipeline.volumes()) == 4


async def test_deleted_pods_lose_nothing(flow: Flow) -> None:
    """A collector, a shipper and a nats-server whose pods are deleted go on where they were."""
    pipeline = flow.pipeline
    shippers = flow.pods_beside()
    for names in ({"flow-collector-0"}, shippers, {"flow-nats-0"}):
        await pipeline.delete_pods(*names)
        await flow.goes_on()

    pipeline.wait_ready()
    await flow.has_arrived()
    assert flow.pods_beside() != shippers


async def test_a_collector_that_was_thought_dead_writes_nothing_twice(flow: Flow) -> None:
    """One that stands still is deleted by force, and wakes up when another of its name is there."""
    pipeline = flow.pipeline
    before = pipeline.pods("collector")["flow-collector-0"]
    with stopped(processes_of(before)) as zombies:
        assert zombies
        pipeline.kubectl("delete", "pod", "flow-collector-0", "--force", "--grace-period=0")
        await eventually(
            lambda: pipeline.pods("collector").get("flow-collector-0", before) != before,
            within_s=60,
            what="another pod of the name",
        )
        await flow.goes_on()

    pipeline.wait_ready()
    await flow.has_arrived()


async def test_a_drained_node_comes_back_without_loss(cluster: Cluster, flow: Flow) -> None:
    """Evicting all that may go from a node, and letting it come back, loses no line."""
    pipeline, node = flow.pipeline, cluster.nodes[0]
    try:
        cluster.kubectl(
            "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
            f"--pod-selector=app.kubernetes.io/instance={pipeline.name}", "--timeout=120s",
        )  # fmt: skip
        await flow.goes_on()
    finally:
        cluster.kubectl("uncordon", node)

    pipeline.wait_ready()
    await flow.has_arrived()


@pytest.mark.parametrize("what", ["resources", "image"])
async def test_rolling_collectors_loses_nothing(
    flow: Flow, images: dict[str, str], what: str
) -> None:
    """Collectors are replaced one by one, and shippers keep running."""
    pipeline = flow.pipeline
    # All images have the same program; this one is another one for Kubernetes.
    change = {
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}}, "image": images["shipper"],
    }[what]  # fmt: skip
    before, shippers = pipeline.pods("collector"), pipeline.pods("shipper")
    pipeline.patch({"collectors": {what: change}})
    await eventually(
        lambda: not set(before.values()) & set(pipeline.pods("collector").values()),
        within_s=120,
        what="new pods of all collectors",
    )

    pipeline.wait_ready()
    await flow.has_arrived()
    assert pipeline.pods("shipper") == shippers
