"""The cost of many pipelines for one operator: run by ``make bench-operator``, on its own
Kubernetes, whose pods only pretend to run.

The module is not called ``operator``: no Python starts beside a module of that name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pykube  # type: ignore[import-untyped]  # it has no types

from api_server.fake_nodes import SELECTOR, TOLERATION, fake_nodes
from cluster.bare import creation
from cluster.handle import Cluster, record_of
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.ports import free_port
from logpipeline.records import EpochRecord, StreamPosition, epoch_key
from logpipeline.spec import parse
from processes import Cost, cost_of, stop
from run import Row

RESULT = Path(__file__).parent / "latest-operator.json"
DEFINITION = Path(__file__).parents[1] / "deploy" / "crd.yaml"
NAMESPACE = f"bench-{os.getpid()}"
CASE = "operator"
AGENTS = ("logpipeline-operator", "kopf/")
READS = ("get", "list", "watch")
POLL_S = 0.5
DEADLINE_S = 1_800
# The operator checks a pipeline without events this often.
PERIOD_S = 30.0
IDLE_PERIODS = 2
IMAGES = {
    f"LOGPIPELINE_IMAGE_{name}": f"images.invalid/{name.lower()}:1"
    for name in ("COLLECTOR", "SHIPPER", "NATS")
}
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The operator's work in a span of time."""

    seconds: float
    cpu_s: float
    rss_bytes: int
    requests: Counter[str]

    @property
    def writes(self) -> int:
        """Requests that change something."""
        return sum(count for verb, count in self.requests.items() if verb not in READS)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument(
        "--kubeconfig", type=Path, help="a cluster of tests/cluster/kind that is up"
    )
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logpipeline-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = args.kubeconfig or stack.enter_context(own_cluster(f"bench-{os.getpid()}"))
        api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(kubeconfig)))
        cluster = Cluster(kubeconfig, api, record_of(kubeconfig))
        rows = asyncio.run(measured(cluster, folder, args.pipelines))
    args.result.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    for row in rows:
        print(f"{row.case:20} {row.metric:32} {row.value:12.2f} {row.unit}")


@contextmanager
def own_cluster(name: str) -> Iterator[Path]:
    """Create a Kubernetes for this run only."""
    try:
        yield creation.create(name).kubeconfig
    finally:
        creation.delete(name)


async def measured(cluster: Cluster, folder: Path, count: int) -> list[Row]:
    """Create *count* pipelines, leave them alone, and return the figures."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    cluster.kubectl("wait", "--for=condition=Established", "-f", str(DEFINITION))
    cluster.kubectl("create", "namespace", NAMESPACE)
    async with EmbeddedServer(folder / "nats") as server:
        with ExitStack() as stack:
            stack.enter_context(fake_nodes(cluster, 1, folder / "kwok.log"))
            operator = stack.enter_context(running(cluster, folder / "operator.log"))
            pipelines = [manifest(number, server.url) for number in range(count)]
            meter = Meter(cluster, operator.pid)
            cluster.apply(*pipelines)
            applied_s = await until(lambda: len(children(cluster)) >= 2 * count)
            ready_s = applied_s + await until(lambda: true(cluster, "StreamsReady") >= count)
            making = meter.span()
            await take_all(server.url, pipelines)
            await until(lambda: true(cluster, "Ready") >= count)
            async with asyncio.timeout(DEADLINE_S):
                await quiet(meter)
            meter.begin()
            # The idle cost is measured: nothing changes meanwhile.
            await asyncio.sleep(IDLE_PERIODS * PERIOD_S)
            idle = meter.span()
            # Its finalizer waits for the operator.
            cluster.kubectl("delete", "logpipelines", "--all", f"--namespace={NAMESPACE}")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    return rows_of(count, applied_s, ready_s, making, idle)


def rows_of(count: int, applied_s: float, ready_s: float, making: Span, idle: Span) -> list[Row]:
    """Return the figures in the form of the other benchmarks."""
    periods = idle.seconds / PERIOD_S * count

    def row(metric: str, value: float, unit: str) -> Row:
        return Row(f"{CASE} {count}", metric, round(value, 3), unit, "", None, 0.0)

    return [
        row("children applied after", applied_s, "s"),
        row("streams ready after", ready_s, "s"),
        row("rss operator", making.rss_bytes / 2**20, "MiB"),
        row("rss operator idle", idle.rss_bytes / 2**20, "MiB"),
        row("cpu a pipeline made", making.cpu_s / count, "CPU s"),
        row("cpu a pipeline idle", idle.cpu_s / periods, "CPU s/period"),
        row("requests a pipeline made", making.requests.total() / count, "requests"),
        row("writes a pipeline made", making.writes / count, "requests"),
        row("requests a pipeline idle", idle.requests.total() / periods, "requests/period"),
        row("writes idle", idle.writes, "requests"),
    ]


class Meter:
    """Reads the operator's cost and its requests, from the kernel and from the audit log."""

    def __init__(self, cluster: Cluster, pid: int) -> None:
        self._log = cluster.audit_log
        self._pid = pid
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._offset = self._log.stat().st_size
        self._cost: Cost = cost_of(self._pid)
        self._started = time.monotonic()

    def span(self) -> Span:
        """Return the work since the beginning."""
        cost = cost_of(self._pid)
        requests: Counter[str] = Counter()
        with self._log.open() as lines:
            lines.seek(self._offset)
            for line in lines:
                # A request in progress has no end yet.
                entry = json.loads(line) if line.endswith("\n") else {}
                if entry.get("userAgent", "").startswith(AGENTS):
                    requests[entry["verb"]] += entry["stage"] == "ResponseComplete"
        seconds = time.monotonic() - self._started
        return Span(seconds, cost.cpu_s - self._cost.cpu_s, cost.rss_bytes, requests)


@contextmanager
def running(cluster: Cluster, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the operator on this machine."""
    words = ["--no-lease", f"--namespace={NAMESPACE}", f"--http=127.0.0.1:{free_port()}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "logpipeline_operator"),
                *(f"--kubeconfig={cluster.kubeconfig}", *words),
            ],
            stdout=output,
            stderr=output,
            env={**os.environ, **IMAGES, "LOGPIPELINE_RESYNC_SECONDS": str(PERIOD_S)},
        )
    try:
        yield process
    finally:
        stop(process)


def manifest(number: int, server: str) -> Manifest:
    """One pipeline of one partition, whose pods pretend to run."""
    pod = {"nodeSelector": SELECTOR, "tolerations": [TOLERATION]}
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": f"p{number}", "namespace": NAMESPACE},
        "spec": {
            "partitions": 1,
            # All of them share one server, and what they reserve there.
            "nats": {"servers": [server], "managed": {"storage": "16Mi"}},
            "collectors": {"persistence": {"emptyDir": {}}, **pod},
            "shippers": pod,
        },
    }


async def take_all(server: str, pipelines: list[Manifest]) -> None:
    """Act for the collectors: pods that only pretend do not take partitions."""
    connection = Connection(NatsOptions(servers=(server,)))
    await connection.start(patience_s=DEADLINE_S)
    js = JetStream(connection)
    for resource in pipelines:
        pipeline = parse(resource)
        info = await js.stream_info(pipeline.names.stream(0))
        assert info is not None
        record = EpochRecord(
            epoch=1, owner=f"{pipeline.name}-collector-0", incarnation="bench", assignment=1,
            position=StreamPosition(created=info["created"], sequence=0, time_ns=0),
        )  # fmt: skip
        bucket = Bucket(js, pipeline.names.state_bucket)
        await bucket.put(epoch_key("main", 0), record.encode())
    await connection.close()


def children(cluster: Cluster) -> list[str]:
    """The controllers that the operator has made."""
    found = cluster.kubectl(
        "get", "statefulsets,daemonsets", f"--namespace={NAMESPACE}", "-o", "name"
    )
    return found.split()


def true(cluster: Cluster, condition: str) -> int:
    """Return the number of pipelines with the *condition*."""
    one = f'{{.status.conditions[?(@.type=="{condition}")].status}}'
    path = "{range .items[*]}" + one + '{"\\n"}{end}'
    found = cluster.kubectl(
        "get", "logpipelines", f"--namespace={NAMESPACE}", "-o", f"jsonpath={path}"
    )
    return found.split().count("True")


async def until(is_it: Callable[[], bool]) -> float:
    """Wait until *is_it*, and return after how many seconds that was.

    Raises:
        TimeoutError: it did not come.
    """
    began = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(is_it):  # noqa: ASYNC110 - the cluster has no event for us
            await asyncio.sleep(POLL_S)
    return time.monotonic() - began


async def quiet(meter: Meter) -> None:
    """Wait for a whole period without a write, and count from then on."""
    has_written = True
    while has_written:
        meter.begin()
        await asyncio.sleep(PERIOD_S)
        has_written = meter.span().writes > 0


if __name__ == "__main__":
    main()
