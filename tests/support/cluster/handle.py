"""What a test does with its cluster, whoever made it: kind, our plain processes, or its user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pykube  # type: ignore[import-untyped]  # it has no types
import pytest
from urllib3.util import Retry

from cluster.bare import binaries, containers, creation, objects, places
from cluster.bare.locking import locked
from cluster.bare.network import Addresses
from cluster.bare.places import ClusterPlaces
from cluster.bare.running import wait_until
from cluster.bare.state import Record

# A hung connection to the API server is a failure, not a test that never ends.
KUBECTL_DEADLINE_S = 300.0
OUTPUT_CHARS_MAX = 4_000
DEFINED_WITHIN_S = 60.0
# Only the answer 429 is repeated; a connection that fails is what a test has to see.
LATER = Retry(
    connect=0,
    read=0,
    other=0,
    status=10,
    status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS],
    allowed_methods=None,
    backoff_factor=0.2,
)


class CommandFailed(AssertionError):
    """A program ended badly; the text says which, and what it wrote."""


@dataclass(frozen=True)
class Cluster:
    """A running Kubernetes; *record* is there when its nodes are processes of this machine."""

    kubeconfig: Path
    api: pykube.HTTPClient
    record: Record | None

    def kubectl(self, *arguments: str, input: str = "", check: bool = True) -> str:
        """What `kubectl` prints; with *check* false, also when it fails."""
        return self._run("kubectl", *arguments, stdin=input, check=check)

    def helm(self, *arguments: str, input: str = "", check: bool = True) -> str:
        """What `helm` prints."""
        return self._run("helm", *arguments, stdin=input, check=check)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply objects as a user does, and let the API server judge them."""
        content = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", input=json.dumps(content))

    def define(self, definitions: str, *names: str) -> None:
        """Apply the text *definitions*, of the resources *names* (``<plural>.<group>``), and return
        once kubectl finds these: an established one is found a moment later, and `kubectl wait`
        fails on one that has no conditions yet.
        """
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=definitions)

        def are_known() -> bool:
            return set(names) <= set(self.kubectl("api-resources", "-o", "name").split())

        wait_until(are_known, what=f"{', '.join(names)} known", within_s=DEFINED_WITHIN_S)
        # For a moment the API server says "later" to whoever lists them; kubectl asks again.
        self.kubectl("get", ",".join(names), "--all-namespaces")

    def get(self, *arguments: str) -> dict[str, Any]:
        """What `kubectl get …` finds, as data."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def stored(self, manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the API server has of *manifests* now, one for each, with who manages its fields."""
        content = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        words = ("get", "-f", "-", "-o", "json", "--show-managed-fields")
        answer = json.loads(self.kubectl(*words, input=json.dumps(content)))
        found: list[dict[str, Any]] = answer["items"] if answer["kind"] == "List" else [answer]
        assert [one["metadata"]["name"] for one in found] == [
            one["metadata"]["name"] for one in manifests
        ]
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, without those that are only pretended."""
        found = self.get("nodes", "--selector=type!=kwok")["items"]
        return tuple(sorted(node["metadata"]["name"] for node in found))

    @property
    def machine(self) -> str:
        """A name of this machine for pods, to reach a server that a test runs here."""
        self._own("pods cannot reach this machine by a name")
        return "machine.test"

    @property
    def machine_address(self) -> str:
        """The address of this machine that its pods reach, and that is this cluster's alone."""
        self._own("pods cannot reach this machine by an address")
        assert self.record is not None
        return str(Addresses(self.record.number).machine)

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line, written before it answers."""
        return self._own("its audit log is not here").audit_log

    def log_dir(self, node: str) -> Path:
        """The /var/log of *node*, seen from this machine."""
        return self._own("its nodes' files are not here").node_logs(node)

    def data_dir(self, node: str) -> Path:
        """The /var/lib of *node*, seen from this machine."""
        return self._own("its nodes' files are not here").node_data(node)

    def load(self, archive: Path) -> None:
        """Bring the images of an archive to all nodes."""
        at = self._own("images cannot be brought to its nodes")
        assert self.record is not None
        containers.load_everywhere(at, self.record.nodes, archive)

    def add_volumes(self, indexes: Iterable[int]) -> None:
        """Make the volumes of these numbers on each node, new and empty; former ones go."""
        at = self._own("its volumes are not ours")
        assert self.record is not None
        wanted = [(node, index) for node in self.record.nodes for index in indexes]
        self._renew(at, wanted)

    def renew_volumes(self) -> None:
        """Empty the volumes whose claims are gone, and offer them again."""
        if self.record is None or not self.record.nodes:
            return
        at = ClusterPlaces(self.record.name)
        # Of two at once the second would take volumes away that are in use again.
        with locked(at.folder / "volumes.lock", what="offering volumes again"):
            there = self.api.get(version="v1", url="persistentvolumes")
            there.raise_for_status()
            released = {
                volume["metadata"]["name"]
                for volume in there.json()["items"]
                if volume["status"]["phase"] in {"Released", "Failed"}
            }
            known = ((n, i) for n in self.record.nodes for i in range(objects.VOLUMES_PER_NODE))
            wanted = [(n, i) for n, i in known if objects.volume_name(n, i) in released]
            self._renew(at, wanted)

    def _renew(self, at: ClusterPlaces, wanted: list[tuple[str, int]]) -> None:
        if not wanted:
            return
        names = [objects.volume_name(node, index) for node, index in wanted]
        self.kubectl("delete", "persistentvolume", "--ignore-not-found", *names)
        for (node, _), name in zip(wanted, names, strict=True):
            folder = at.node_data(node) / objects.VOLUME_FOLDER / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.apply(*(objects.volume(node, index) for node, index in wanted))

    def program(self, name: str) -> Path:
        """Where kubectl or helm is."""
        built = binaries.folder() / name
        found = str(built) if built.exists() else shutil.which(name)
        if found is None:
            what = "api" if name in binaries.API else "all"
            pytest.skip(f"{name} is neither installed nor built (tests/cluster/kind build {what})")
        return Path(found)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a program that is to use this cluster."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def _run(self, name: str, *arguments: str, stdin: str, check: bool) -> str:
        done = subprocess.run(
            [str(self.program(name)), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            # Pods print what they like, and a failed test shows their logs.
            errors="replace",
            check=False,
            env=self.environment,
            timeout=KUBECTL_DEADLINE_S,
        )
        if check and done.returncode:
            said = (done.stdout + done.stderr)[-OUTPUT_CHARS_MAX:]
            raise CommandFailed(f"{name} {' '.join(arguments)}: {said}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def _own(self, otherwise: str) -> ClusterPlaces:
        if self.record is None:
            pytest.skip(f"a cluster that tests/cluster/kind did not make: {otherwise}")
        return ClusterPlaces(self.record.name)


def handle_of(kubeconfig: Path, record: Record | None) -> Cluster:
    """The cluster that *kubeconfig* leads to."""
    return Cluster(kubeconfig, client(pykube.KubeConfig.from_file(str(kubeconfig))), record)


def client(config: pykube.KubeConfig) -> pykube.HTTPClient:
    """A client that asks again, as kubectl does, when the API server says "later".

    It says so for a second after a definition is made or changed, while it reads what it stores.
    """
    adapter = pykube.http.KubernetesHTTPAdapter(config, max_retries=LATER)
    return pykube.HTTPClient(config, http_adapter=adapter)


def record_of(kubeconfig: Path) -> Record | None:
    """The one of our clusters that *kubeconfig* leads to, if it is one of ours."""
    url = pykube.KubeConfig.from_file(str(kubeconfig)).cluster["server"]
    for record in creation.usable():
        own = pykube.KubeConfig.from_file(str(places.ClusterPlaces(record.name).kubeconfig))
        if own.cluster["server"] == url:
            return record
    return None
