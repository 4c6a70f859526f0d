"""Pipelines in a cluster: made, waited for, and their collectors' files found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.bare import objects
from cluster.handle import Cluster
from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import parse
from logpipeline_operator.children import nats_tls
from specs import KEEPS_ALL, merged
from waiting import eventually

# A small machine pulls nothing, but starts everything at once.
READY_S_MAX = 150
Manifest = dict[str, Any]
# Where nobody needs a file after the pod.
EMPTY_DIR: Manifest = {"emptyDir": {"sizeLimit": "1Gi"}}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A LogPipeline resource, by its name."""

    cluster: Cluster
    namespace: str
    name: str

    @property
    def here(self) -> str:
        """The option by which kubectl finds it."""
        return f"--namespace={self.namespace}"

    def kubectl(self, *arguments: str, check: bool = True, input: str = "") -> str:
        """What `kubectl` prints in the pipeline's namespace."""
        return self.cluster.kubectl(*arguments, self.here, check=check, input=input)

    def get(self) -> Manifest:
        """The resource as it is."""
        return self.cluster.get(f"logpipeline/{self.name}", self.here)

    def wait_ready(self) -> None:
        """Wait until the status says Ready of the newest specification."""
        generation = self.get()["metadata"]["generation"]
        self.wait_for(f"jsonpath={{.status.observedGeneration}}={generation}")
        self.wait_for("condition=Ready")

    def wait_for(self, condition: str) -> None:
        """Wait as `kubectl wait --for` does."""
        self.kubectl(
            "wait", f"logpipeline/{self.name}", f"--for={condition}", f"--timeout={READY_S_MAX}s"
        )

    def wait_reason(self, condition: str, reason: str) -> str:
        """Wait until *condition* has *reason*, and return the sentence beside it."""
        self.wait_for(f'jsonpath={{.status.conditions[?(@.type=="{condition}")].reason}}={reason}')
        return str(self.condition(condition)["message"])

    def condition(self, name: str) -> Manifest:
        """A condition of the status; empty where it has none of the name."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == name), {})

    def patch(self, spec: Manifest) -> None:
        """Change fields of the specification."""
        change = json.dumps({"spec": spec})
        self.kubectl("patch", f"logpipeline/{self.name}", "--type=merge", "--patch", change)

    def annotate(self, text: str) -> None:
        """Set an annotation (`key=value`), or remove one (`key-`)."""
        self.kubectl("annotate", "--overwrite", f"logpipeline/{self.name}", text)

    def child(self, kind: str, component: str) -> Manifest:
        """The child of *kind* that belongs to *component*."""
        return self.cluster.get(f"{kind}/{self.name}-{component}", self.here)

    def pods(self, component: str) -> dict[str, str]:
        """Names and uids of the pods of *component*."""
        return self._pods(
            f"--selector=app.kubernetes.io/instance={self.name},"
            f"app.kubernetes.io/component={component}",
        )

    async def delete_pods(self, *names: str) -> None:
        """Delete pods of the namespace by their names, and wait until they are gone.

        `kubectl delete --wait` may see the pod of the same name that a StatefulSet has made anew.
        Then it waits until that one is deleted as well.
        """
        known = self._pods()
        former = {known[name] for name in names}
        self.kubectl("delete", "pod", *names, "--wait=false")

        def are_gone() -> bool:
            return former.isdisjoint(self._pods().values())

        await eventually(are_gone, within_s=READY_S_MAX, what=f"{', '.join(names)} gone")

    def volumes(self, component: str = "collector") -> list[Path]:
        """The folders of all pods of *component* there ever were, seen from this machine."""
        claims = self.cluster.get(
            "persistentvolumeclaims", self.here,
            f"--selector=logpipeline.dev/pipeline={self.name},"
            f"app.kubernetes.io/component={component}",
        )  # fmt: skip
        names = [claim["spec"].get("volumeName") for claim in claims["items"]]
        return [folder_of(self.cluster, name) for name in names if name]

    def _pods(self, *options: str) -> dict[str, str]:
        """Names and uids of the pods of the namespace that kubectl finds with *options*."""
        found = self.cluster.get("pods", self.here, *options)
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found["items"]}


def create(cluster: Cluster, namespace: str, name: str, spec: Manifest) -> Pipeline:
    """Apply a LogPipeline and return it, without waiting for anything."""
    cluster.apply(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": name, "namespace": namespace},
            "spec": merged(KEEPS_ALL, spec),
        }
    )
    return Pipeline(cluster, namespace, name)


def trusting(pipeline: Pipeline, options: NatsOptions, url: str, folder: Path) -> NatsOptions:
    """The same *options* for the pipeline's managed server, which is at *url* from here: its
    certificate is checked as its clients do, by a file in *folder*.
    """
    file = folder / nats_tls.CA_FILE
    file.write_text(pipeline.child("configmap", "nats-ca")["data"][nats_tls.CA_FILE])
    name = nats_tls.server_name(parse(pipeline.get()))
    return replace(options, servers=(url,), ca_file=file, tls_name=name)


def small(**more: Any) -> Manifest:
    """A specification that takes little of the machine: no shippers, one partition, one collector
    whose files go with it.
    """
    return {
        "partitions": 1,
        "nats": {"managed": {"storage": "1Gi"}},
        "collectors": {"persistence": EMPTY_DIR},
        "shippers": {"enabled": False},
    } | more


def folder_of(cluster: Cluster, volume: str) -> Path:
    """The folder that the PersistentVolume *volume* stands for, seen from this machine."""
    node = next(node for node in cluster.nodes if volume.startswith(f"{node}-"))
    return cluster.data_dir(node) / objects.VOLUME_FOLDER / volume


def claims_of(pipelines: Sequence[Pipeline]) -> list[Path]:
    """The folders of the collectors of *pipelines* together."""
    return [folder for pipeline in pipelines for folder in pipeline.volumes()]
