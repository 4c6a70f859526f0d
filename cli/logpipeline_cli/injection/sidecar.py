"""Adds a shipper as a sidecar to workloads. The operation is idempotent: injecting twice gives the
same manifest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from logpipeline.spec.api import GROUP
from logpipeline_cli.errors import CliError

Manifest = dict[str, Any]

# Shippers skip containers of this name, so that no other shipper ships its log.
CONTAINER = "logpipeline-shipper"
CONFIG_VOLUME = "logpipeline-config"
POSITIONS_VOLUME = "logpipeline-positions"
# Names, in the pod template, the pipeline for which it was injected.
ANNOTATION = f"{GROUP}/sidecar"
# Twice the limit of a shipper's quarantine: the kubelet evicts a pod that exceeds it.
POSITIONS_BYTES_MAX = "128Mi"
# Time to read the files to the end, after the other containers have stopped.
READ_OUT_S = 25
# Additional time for messages in flight, and for the process to exit.
GRACE_MORE_S = 10
CONFIG_FOLDER = "/etc/logpipeline"
CONFIG_FILE = "pipeline.yaml"
# The key of the resource in the ConfigMap. The key with the name of the file has no CA to check a
# server by, and is for pods of earlier versions.
CONFIG_KEY = "sidecar.yaml"
DATA = "/var/lib/logpipeline"
# The user of the image, for pods whose other containers run as root.
USER = 65532
HTTP_PORT_FIRST = 9101
CREDENTIAL_KINDS = ("tls", "creds", "nkey", "token", "user")
# The keys of the managed server's Secret for shippers, and the files in which they are mounted.
MANAGED_ITEMS = {"shipper-user": "user/user", "shipper-password": "user/password"}

_WILD = re.compile(r"[*?\[]")
# Volumes that one container can write, and another one read.
SHARED_KINDS = ("emptyDir", "ephemeral", "persistentVolumeClaim")

# The path of the pod template by kind, for the kinds of GROUPS.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
GROUPS = ("v1", "apps/v1", "batch/v1")
# Kubernetes' default.
GRACE_S = 30


# It is a native sidecar (an init container with restartPolicy Always): Kubernetes starts it before
# the pod's containers and stops it after them, so that it ships their last lines.
@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Keys of a Secret; they become the files ``nats/<kind>/<key>``, as the resource names them."""

    kind: str
    secret: str
    keys: tuple[str, ...]

    def projection(self) -> Manifest:
        """Return the source of a projected volume."""
        items = [{"key": key, "path": f"nats/{self.kind}/{key}"} for key in self.keys]
        return {"secret": {"name": self.secret, "items": items}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The sidecar to add; without *credentials* it uses those of the managed server."""

    pipeline: str
    paths: tuple[str, ...]
    volume: str
    image: str
    namespace: str | None = None
    credentials: tuple[Credentials, ...] = ()

    @property
    def config_map(self) -> str:
        """The ConfigMap with the resource, which the operator creates."""
        return f"{self.pipeline}-sidecar"


def container(sidecar: Sidecar, mount: Manifest, *, port: int | None, user: int | None) -> Manifest:
    """Return the container, which reads the volume at *mount*.

    Without a *port* it serves no probe. As *user* it can read the files of the pod's containers.
    """
    made: Manifest = {
        "name": CONTAINER,
        "image": sidecar.image,
        "restartPolicy": "Always",
        "args": _arguments(sidecar, port),
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    if port is not None:
        made["livenessProbe"] = {
            "httpGet": {"path": "/healthz", "port": port},
            "periodSeconds": 20,
            "failureThreshold": 6,
        }
    return {
        **made,
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": _security(user),
        "volumeMounts": [
            {**mount, "readOnly": True},
            {"name": POSITIONS_VOLUME, "mountPath": DATA},
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True},
        ],
    }


def volumes(sidecar: Sidecar) -> list[Manifest]:
    """Return the sidecar's own volumes: positions, and the resource with its credentials."""
    sources: list[Manifest] = [
        {
            "configMap": {
                "name": sidecar.config_map,
                "items": [{"key": CONFIG_KEY, "path": CONFIG_FILE}],
            }
        }
    ]
    sources += [each.projection() for each in sidecar.credentials]
    if not sidecar.credentials:
        items = [{"key": key, "path": f"nats/{path}"} for key, path in MANAGED_ITEMS.items()]
        sources.append({"secret": {"name": f"{sidecar.pipeline}-nats-auth", "items": items}})
        # A server without TLS has none; when that changes, running pods get it.
        ca = [{"key": "ca.crt", "path": "nats/tls/ca.crt"}]
        trusted = {"name": f"{sidecar.pipeline}-nats-ca", "items": ca, "optional": True}
        sources.append({"configMap": trusted})
    return [
        {"name": POSITIONS_VOLUME, "emptyDir": {"sizeLimit": POSITIONS_BYTES_MAX}},
        {"name": CONFIG_VOLUME, "projected": {"sources": sources}},
    ]


def _arguments(sidecar: Sidecar, port: int | None) -> list[str]:
    words = ["ship", "-f", f"{CONFIG_FOLDER}/{CONFIG_FILE}", "--name", "sidecar"]
    words += ["--host", "$(POD_NAME)", "--data", DATA, "--read-out", str(READ_OUT_S)]
    words += ["--http", "127.0.0.1:0" if port is None else f"0.0.0.0:{port}"]
    for path in sidecar.paths:
        words += ["--include", path]
    return words


def _security(user: int | None) -> Manifest:
    """Return a security context that conforms to the standard `restricted`, and is stricter."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        **({} if user is None else {"runAsUser": user}),
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def folder_of(paths: tuple[str, ...]) -> str:
    """Return the common folder of all *paths*, up to their first wildcard.

    Raises:
        CliError: they are not absolute paths of files, or have no common folder.
    """
    folders = []
    for path in paths:
        words = PurePosixPath(path).parts
        if not path.startswith("/") or path.endswith("/") or ".." in words:
            raise CliError(f"--path {path!r}: give an absolute path, such as /var/log/app/*.log")
        wild = next((i for i, word in enumerate(words) if _WILD.search(word)), len(words) - 1)
        folders.append(words[: min(wild, len(words) - 1)])
    common = folders[0]
    for folder in folders[1:]:
        same = [a == b for a, b in zip(common, folder, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    if len(common) < 2:
        raise CliError(
            f"--path {' '.join(paths)}: the files need a folder of their own, into which a volume "
            "is mounted; give a path such as /var/log/app/*.log"
        )
    return str(PurePosixPath(*common))


def mount_volume(sidecar: Sidecar, spec: Manifest, where: str) -> Manifest:
    """Add the volume to the pod *spec*, and return the shipper's mount of it.

    Raises:
        CliError: a volume of that name cannot be shared, or is mounted elsewhere; *where* names the
            workload.
    """
    folder = folder_of(sidecar.paths)
    existing = _named(spec.get("volumes"), sidecar.volume)
    if existing is None:
        spec.setdefault("volumes", []).append({"name": sidecar.volume, "emptyDir": {}})
    elif not any(kind in existing for kind in SHARED_KINDS):
        kind = ", ".join(key for key in existing if key != "name")
        raise CliError(
            f"{where}: the volume {sidecar.volume!r} is a {kind}, into which no container writes; "
            "give --volume the name of an emptyDir, or of no volume yet"
        )
    mounts = [
        mount
        for container in spec["containers"]
        for mount in container.get("volumeMounts") or ()
        if mount.get("name") == sidecar.volume
    ]
    if not mounts:
        return _mount_in_all(sidecar, spec, folder, where)
    for mount in mounts:
        if _is_within(folder, str(mount.get("mountPath"))) and "subPathExpr" not in mount:
            return {key: mount[key] for key in ("name", "mountPath", "subPath") if key in mount}
    places = ", ".join(sorted({str(mount.get("mountPath")) for mount in mounts}))
    raise CliError(
        f"{where}: the volume {sidecar.volume!r} is mounted at {places}, but the files are in "
        f"{folder}; give --path '{places.split(', ')[0]}/*.log', or another --volume"
    )


def _mount_in_all(sidecar: Sidecar, spec: Manifest, folder: str, where: str) -> Manifest:
    mount = {"name": sidecar.volume, "mountPath": folder}
    for container in spec["containers"]:
        for other in container.get("volumeMounts") or ():
            if _is_within(str(other.get("mountPath")), folder):
                raise CliError(
                    f"{where}: container {container.get('name')!r} has the volume "
                    f"{other.get('name')!r} at {other.get('mountPath')}; give --volume "
                    f"{other.get('name')}, or another --path"
                )
        container.setdefault("volumeMounts", []).append(dict(mount))
    return mount


def _named(entries: Any, name: str) -> Manifest | None:
    return next((entry for entry in entries or () if entry.get("name") == name), None)


def _is_within(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(PurePosixPath(folder))


def is_workload(document: Any) -> bool:
    """Return whether *document* is a workload that runs pods."""
    return (
        isinstance(document, dict)
        and document.get("kind") in TEMPLATES
        and document.get("apiVersion") in GROUPS
    )


def workloads_in(document: Any) -> list[Manifest]:
    """Return the workloads of *document*: itself, or those of a List."""
    if is_workload(document):
        return [document]
    if isinstance(document, dict) and document.get("kind") == "List":
        return [item for item in document.get("items") or () if is_workload(item)]
    return []


def pipeline_of(workload: Manifest) -> str | None:
    """Return the pipeline for which *workload* was injected before; None if it was not."""
    annotations = _metadata(_template(workload)).get("annotations") or {}
    pipeline = annotations.get(ANNOTATION)
    return None if pipeline is None else str(pipeline)


def inject(workload: Manifest, sidecar: Sidecar) -> None:
    """Add *sidecar* to the pods of *workload*, or replace an earlier one.

    Raises:
        CliError: the workload does not allow it; the message says why.
    """
    where = name_of(workload)
    _check_namespace(workload, sidecar, where)
    template = _template(workload)
    spec = template.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise CliError(f"{where} has no containers; give a complete manifest")
    _check_containers(spec, where)
    metadata = _metadata(template)
    was_injected = ANNOTATION in (metadata.get("annotations") or {})
    mount = mount_volume(sidecar, spec, where)
    made = container(sidecar, mount, port=_port(spec), user=_user(spec))
    for volume in volumes(sidecar):
        _upsert(spec.setdefault("volumes", []), volume)
    _upsert(spec.setdefault("initContainers", []), made, at=0)
    if not was_injected:
        # The containers' grace period comes first; the shipper gets the rest.
        grace_s = spec.get("terminationGracePeriodSeconds", GRACE_S)
        spec["terminationGracePeriodSeconds"] = grace_s + READ_OUT_S + GRACE_MORE_S
    metadata.setdefault("annotations", {})[ANNOTATION] = sidecar.pipeline
    template["metadata"] = metadata


def name_of(workload: Manifest) -> str:
    """Return the name of *workload* for messages."""
    metadata = _metadata(workload)
    return f"{workload['kind']} {metadata.get('name') or metadata.get('generateName') or '?'}"


def _template(workload: Manifest) -> Manifest:
    found: Any = workload
    for key in TEMPLATES[workload["kind"]]:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        path = ".".join(TEMPLATES[workload["kind"]])
        raise CliError(f"{name_of(workload)} has no {path}; give a complete manifest")
    return found


def _metadata(object: Manifest) -> Manifest:
    metadata = object.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _check_namespace(workload: Manifest, sidecar: Sidecar, where: str) -> None:
    namespace = _metadata(workload).get("namespace")
    if sidecar.namespace is not None and namespace not in (None, sidecar.namespace):
        raise CliError(
            f"{where} is in namespace {namespace!r}, the pipeline in {sidecar.namespace!r}: the "
            "sidecar mounts the pipeline's ConfigMap and Secret, and pods mount those of their own "
            f"namespace only. Make a LogPipeline in {namespace!r}, and give --namespace {namespace}"
        )


def _check_containers(spec: Manifest, where: str) -> None:
    if any(each.get("name") == CONTAINER for each in spec["containers"]):
        raise CliError(
            f"{where} has an ordinary container {CONTAINER!r}: remove it, or give it another name"
        )


def _port(spec: Manifest) -> int | None:
    """Return a port that no container of the pod declares; None on the node's network, where any
    port may be in use.
    """
    if spec.get("hostNetwork"):
        return None
    others = [*spec["containers"], *(spec.get("initContainers") or ())]
    used = {
        port.get("containerPort")
        for each in others
        if each.get("name") != CONTAINER
        for port in each.get("ports") or ()
    }
    return next(port for port in range(HTTP_PORT_FIRST, 65536) if port not in used)


def _user(spec: Manifest) -> int | None:
    """Return the user to run as: that of the first container, which alone may be able to read its
    files, unless it is root.
    """
    own = (spec["containers"][0].get("securityContext") or {}).get("runAsUser")
    pods = (spec.get("securityContext") or {}).get("runAsUser")
    if own is not None:
        return int(own) or USER
    return USER if pods == 0 else None


def _upsert(entries: list[Manifest], entry: Manifest, at: int | None = None) -> None:
    for index, other in enumerate(entries):
        if other.get("name") == entry["name"]:
            entries[index] = entry
            return
    entries.insert(len(entries) if at is None else at, entry)
