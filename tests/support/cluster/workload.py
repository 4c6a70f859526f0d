"""Pods that log in a known way, hosts that do beside them, and whether all of it has arrived."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster import lines
from cluster.handle import Cluster
from cluster.pipelines import Pipeline, claims_of
from logpipeline.spec import parse
from logpipeline_demo.expected import Expected
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.oracle import check
from logpipeline_demo.sources import is_place_of
from logpipeline_demo.verdict import Verdict
from logpipeline_operator.children import config, credentials, nats_tls
from waiting import eventually

SEED = 4
ARRIVE_S_MAX = 90.0
# Reading all files again and again would keep the pipeline from what is waited for.
CHECK_EVERY_S = 0.5
# Below this folder of a node's /var/lib: the pods' ledgers, and logs of hosts that are none.
FOLDER = "e2e"
OPEN = 0o777
Manifest = dict[str, Any]


@dataclass(slots=True)
class Printers:
    """Pods of one namespace that print lines, and keep a ledger of these on their node."""

    cluster: Cluster
    namespace: str
    image: str
    nodes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.cluster.nodes
        for folder in self._folders():
            folder.mkdir(parents=True, exist_ok=True)
            # A pod's user is nobody whom this machine knows.
            folder.chmod(OPEN)

    def pod(self, *arguments: str, containers: Sequence[str] = ("main",), **spec: Any) -> Manifest:
        """A pod's specification whose *containers* print as *arguments* of `lines` say."""
        return {
            "terminationGracePeriodSeconds": 5,
            "containers": [self._container(name, arguments) for name in containers],
            "volumes": [{"name": "ledgers", "hostPath": {"path": self._path()}}],
            **spec,
        }

    def expected(self, *, but: str = "") -> Expected:
        """What all pods there ever were, but the one named so, have written up to now."""
        together = Expected(SEED, {})
        for folder in self._folders():
            for ledger in sorted(folder.iterdir()):
                # A pod that has only just begun has announced nothing.
                if ledger.stat().st_size and not ledger.name.startswith(f"{but or None}."):
                    together.sources |= Expected.read(ledger).sources
        return together

    def _folders(self) -> list[Path]:
        return [self.cluster.data_dir(node) / FOLDER / self.namespace for node in self.nodes]

    def _path(self) -> str:
        return f"/var/lib/{FOLDER}/{self.namespace}"

    def _container(self, name: str, arguments: Sequence[str]) -> Manifest:
        program = Path(lines.__file__).read_text()
        given = ("--container", name, "--seed", str(SEED), *arguments)
        fields = {
            "LINES_HOST": "spec.nodeName",
            "LINES_POD": "metadata.name",
            "LINES_NAMESPACE": "metadata.namespace",
        }
        return {
            "name": name,
            "image": self.image,
            "command": ["python", "-c", program, *given],
            "env": [
                {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for key, path in fields.items()
            ],
            "volumeMounts": [{"name": "ledgers", "mountPath": lines.LEDGERS}],
        }


def beside(
    pipeline: Pipeline, image: str, *, node: str, hosts_folder: str, below: str
) -> tuple[Manifest, Manifest]:
    """A shipper for each folder below *hosts_folder* of *node*, as if each were a node: its
    resource and its Deployment, made of what the pipeline has for sidecars, which may speak for any
    host. What it remembers is in the folder *below* the node's.
    """
    resource = yaml.safe_load(pipeline.child("configmap", "sidecar")["data"][config.SIDECAR_FILE])
    # Whatever pods there are on those hosts, they are all meant.
    resource["spec"].get("shippers", {}).pop("match", None)
    resource["spec"]["local"]["shippers"] = [{"name": "beside", "hostsBelow": "/hosts"}]
    name = f"{pipeline.name}-beside"
    made = nats_tls.decided(parse(pipeline.get()), began_with_tls=True)
    mounted = config.volume(made, name, credentials.SHIPPER)
    words = ("ship", "-f", "/etc/logpipeline/pipeline.yaml", "--name", "beside", "--data", "/state")
    container = {
        "name": "shipper",
        "image": image,
        "args": list(words),
        # The files of the hosts are root's, as those of a node are.
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/logpipeline"},
            {"name": "hosts", "mountPath": "/hosts"},
            {"name": "state", "mountPath": "/state"},
        ],
    }
    spec = {
        "nodeName": node,
        "containers": [container],
        "volumes": [
            mounted,
            {"name": "hosts", "hostPath": {"path": hosts_folder}},
            {"name": "state", "hostPath": {"path": below, "type": "DirectoryOrCreate"}},
        ],
    }
    text = {"pipeline.yaml": yaml.safe_dump(resource)}
    metadata = {"name": name, "namespace": pipeline.namespace}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": text}
    return config_map, deployment(name, pipeline.namespace, spec)


def bare_pod(name: str, namespace: str, spec: Manifest) -> Manifest:
    """A pod of nobody."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", **spec},
    }


def deployment(name: str, namespace: str, spec: Manifest, replicas: int = 1) -> Manifest:
    """A Deployment of such pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def job(name: str, namespace: str, spec: Manifest, times: int) -> Manifest:
    """A Job that runs so many pods, one after the other."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completions": times,
            "template": {"spec": {"restartPolicy": "Never", **spec}},
        },
    }


def printed(container: Path) -> bytes:
    """What a container printed on its one stream, as the files in its folder of /var/log/pods tell.

    A runtime that is told to begin a new file cuts the line that it is about to write in two: so
    what is in these files may be other lines than the program's.
    """
    text = []
    for path in [*sorted(container.glob("0.log.*")), container / "0.log"]:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for line in lines:
                _, _, tag, rest = line.split(b" ", 3)
                text.append(rest if tag == b"F" else rest.removesuffix(b"\n"))
    return b"".join(text)


def collected(pipeline: Pipeline, place: str) -> bytes:
    """What the collectors of *pipeline* have of one log, in a file that was not set aside yet."""
    files = [folder / "logs" / place for folder in pipeline.volumes()]
    return b"".join(file.read_bytes() for file in files if file.exists())


def is_place(key: SourceKey, place: str) -> bool:
    """Whether lines of *key* belong into *place*: both streams of all runs of a container are in
    one file.
    """
    log, _, last = key.name.rpartition("/")
    if last.startswith(("stdout.", "stderr.")):
        return is_place_of(SourceKey(key.host, log), place)
    return is_place_of(key, place)


async def arrived(
    pipelines: Sequence[Pipeline],
    expected: Expected,
    *,
    is_ours: Callable[[str], bool],
    within_s: float = ARRIVE_S_MAX,
) -> Verdict:
    """Wait until nothing that was written is missing in the files of *pipelines*, and say what else
    is wrong; files for whose place *is_ours* does not hold are somebody else's. Nobody writes any
    more.
    """
    folders = claims_of(pipelines)
    last = Verdict()
    passes = itertools.count()

    async def is_complete() -> bool:
        nonlocal last
        if next(passes):
            await asyncio.sleep(CHECK_EVERY_S)
        last = check(
            expected, folders, is_place=is_place, is_ignored=lambda place: not is_ours(place)
        )
        assert last.lines, "nothing was written"
        assert not last.lost, f"{last.summary()}\n{last.explain()}"
        return True

    await eventually(is_complete, within_s=within_s, what="the arrival of all lines")
    return last
