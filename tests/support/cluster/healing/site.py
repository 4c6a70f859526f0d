"""A pipeline in a cluster that faults are made on, pods that print numbered lines all the time, and
what is counted of these.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.handle import Cluster
from cluster.pipelines import Manifest, Pipeline, create, folder_of, trusting
from cluster.workload import bare_pod
from cluster.workload import printed as lines_of
from components.managed_server import connected
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, parse
from logpipeline_cli.cluster.kubectl import Forward, Kubectl
from logpipeline_operator import secret_files
from logpipeline_operator.children import config, credentials, names
from logpipeline_operator.children.credentials import credential_files
from logpipeline_operator.children.model import NATS_PORT
from waiting import eventually

NAME = "p"
# Generous: what is promised is that it ends. A frozen server is noticed after minutes.
HEALED_WITHIN_S = 420.0
# Asking all the time would keep the cluster from what is waited for.
ASK_EVERY_S = 0.5
SPEC: dict[str, Any] = {
    "partitions": 2,
    "nats": {"managed": {"storage": "1Gi"}},
    # What is collected stays in the streams, from where a collector that lost its volume reads it.
    "stream": {"maxBytes": "64Mi", "trim": "never"},
    "collectors": {"takeoverAfter": "5s", "persistence": {"size": "1Gi"}},
}
PRINTER = """
import itertools, time
for number in itertools.count():
    print(f"line {number:09d} of this pod", flush=True)
    time.sleep(0.05)
"""


@dataclass(slots=True)
class Site:
    """The pipeline *p* in a namespace of its own, and a pod on each node that prints."""

    cluster: Cluster
    namespace: str
    image: str
    spec: Manifest = field(default_factory=lambda: SPEC)
    pipeline: Pipeline = field(init=False)

    def create(self) -> None:
        """Make the pipeline and the pods; nothing is waited for."""
        mine = {"match": [{"select": {"namespaces": [self.namespace]}}]}
        self.pipeline = create(self.cluster, self.namespace, NAME, self.spec | {"shippers": mine})
        self.cluster.apply(
            *(printer(_name(node), self.namespace, self.image, node) for node in self.cluster.nodes)
        )

    async def begins(self) -> None:
        """Wait until lines of all pods are collected, and the pipeline is ready."""

        def all_print() -> bool:
            return all(self._printed(node) for node in self.cluster.nodes)

        await until(all_print, "all pods print")
        await self.is_collected()
        await self.is_ready()

    async def is_collected(self) -> set[tuple[str, bytes]]:
        """Wait until each line that is printed by now is in a file, and return these lines."""
        lines = self.printed()

        def are_there() -> bool:
            missing = lines - self.collected().keys()
            assert not missing, f"{len(missing)} of {len(lines)} lines, one is {min(missing)}"
            return True

        await until(are_there, "each line is collected")
        return lines

    async def is_ready(self) -> None:
        """Wait until the status says so."""

        def says_so() -> bool:
            ready = self.pipeline.condition("Ready")
            assert ready.get("status") == "True", ready
            return True

        await until(says_so, "it is ready")

    def printed(self) -> set[tuple[str, bytes]]:
        """Return all lines that the runtime has of the pods by now, each with its node."""
        nodes = self.cluster.nodes
        return {(node, line) for node in nodes for line in self._printed(node)}

    def collected(self) -> Counter[tuple[str, bytes]]:
        """Return how often each line stands in the collectors' files."""
        found: Counter[tuple[str, bytes]] = Counter()
        for folder in self.pipeline.volumes():
            for node in self.cluster.nodes:
                at = folder / "logs" / node / self.namespace / _name(node) / "main.log"
                if at.exists():
                    found.update((node, line) for line in _whole_lines(at.read_bytes()))
        return found

    def count(self, lines: set[tuple[str, bytes]]) -> tuple[int, int]:
        """Return how many of *lines* are lost, and how many of all stand there more than once."""
        found = self.collected()
        return len(lines - found.keys()), sum(times - 1 for times in found.values())

    def events(self) -> list[Manifest]:
        """Return what was told of the pipeline."""
        fields = "--field-selector=involvedObject.kind=LogPipeline"
        found: list[Manifest] = self.cluster.get("events", self.pipeline.here, fields)["items"]
        return found

    def there(self, kind: str, name: str) -> Manifest:
        """Return an object of the namespace; empty where it is gone, or about to go."""
        words = (f"{kind}/{name}", self.pipeline.here, "--ignore-not-found", "-o", "json")
        text = self.cluster.kubectl("get", *words)
        found: Manifest = json.loads(text) if text.strip() else {}
        return {} if "deletionTimestamp" in found.get("metadata", {}) else found

    def uid(self, kind: str, name: str) -> str:
        """Return which object it is; empty where it is gone, or about to go."""
        return str(self.there(kind, name).get("metadata", {}).get("uid", ""))

    def volume_of(self, claim: str) -> Path:
        """Return the folder of the volume of *claim*, seen from this machine."""
        found = self.cluster.get(f"persistentvolumeclaim/{claim}", self.pipeline.here)
        return folder_of(self.cluster, found["spec"]["volumeName"])

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[tuple[JetStream, LogPipeline]]:
        """Connect to the managed server as someone with all rights of the operator."""
        resource = parse(self.pipeline.get())
        name = names.nats_auth(resource)
        held: dict[str, Manifest | None] = {name: self.there("secret", name)}
        wanted = credential_files(resource, credentials.OPERATOR)
        kubectl = Kubectl(str(self.cluster.kubeconfig))
        with (
            tempfile.TemporaryDirectory() as folder,
            Forward(kubectl, self.namespace, f"service/{NAME}-nats", NATS_PORT) as port,
        ):
            secret_files.write(secret_files.contents(wanted, held, is_ours=True), Path(folder))
            own = config.nats_options(resource, Path(folder))
            url = f"nats://127.0.0.1:{port.local_port}"
            options = trusting(self.pipeline, own, url, Path(folder))
            async with connected(options) as js:
                yield js, resource

    def _printed(self, node: str) -> list[bytes]:
        pods = self.cluster.log_dir(node) / "pods"
        folder = next(pods.glob(f"{self.namespace}_{_name(node)}_*/main"), None)
        # The folder is there before the file.
        is_there = folder is not None and (folder / "0.log").exists()
        return _whole_lines(lines_of(folder)) if folder and is_there else []


def printer(name: str, namespace: str, image: str, node: str) -> Manifest:
    """Return a pod that prints on *node* all the time."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", PRINTER],
    }
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return bare_pod(name, namespace, spec)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for *condition*, asking now and then; an assertion that fails in it means not yet."""

    async def is_so() -> object:
        await asyncio.sleep(ASK_EVERY_S)
        found = condition()
        return await found if inspect.isawaitable(found) else found

    await eventually(is_so, within_s=HEALED_WITHIN_S, what=what)


def _name(node: str) -> str:
    return f"printer-{node}"


def _whole_lines(text: bytes) -> list[bytes]:
    return text.split(b"\n")[:-1]
