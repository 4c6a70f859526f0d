"""The shipper in somebody's pod: its container and its volumes, as values.

It is a native sidecar (an init container that is always restarted): Kubernetes starts it before the
pod's containers and stops it after them, so that it has their last lines to ship.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

# Selection leaves a container of this name out, so that no other shipper ships its lines.
CONTAINER = "logpipeline-shipper"
CONFIG_VOLUME = "logpipeline-config"
POSITIONS_VOLUME = "logpipeline-positions"
# The pod template's mark: which pipeline it was injected for.
ANNOTATION = "logpipeline.dev/sidecar"
# Twice what a shipper puts into quarantine at most: the kubelet evicts a pod beyond.
POSITIONS_BYTES_MAX = "128Mi"
# Seconds to read the files to their ends, after the other containers have stopped.
READ_OUT_S = 25
# On top of it: what is in flight then, and the end of the process.
GRACE_MORE_S = 10
CONFIG_FOLDER = "/etc/logpipeline"
CONFIG_FILE = "pipeline.yaml"
# The key of the resource in the ConfigMap: the file of that name has nothing to trust a server by,
# and is for pods of former versions.
CONFIG_KEY = "sidecar.yaml"
DATA = "/var/lib/logpipeline"
# The user of our images, for pods whose other containers run as root.
USER = 65532
HTTP_PORT_FIRST = 9101
CREDENTIAL_KINDS = ("tls", "creds", "nkey", "token", "user")
# The keys of the managed server's Secret that a shipper may have, and the files that they become.
MANAGED_ITEMS = {"shipper-user": "user/user", "shipper-password": "user/password"}


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
    """What to put into pods; without *credentials*, those of the managed server."""

    pipeline: str
    paths: tuple[str, ...]
    volume: str
    image: str
    namespace: str | None = None
    credentials: tuple[Credentials, ...] = ()

    @property
    def config_map(self) -> str:
        """The ConfigMap with the resource, which the operator keeps."""
        return f"{self.pipeline}-sidecar"


def container(sidecar: Sidecar, mount: Manifest, *, port: int | None, user: int | None) -> Manifest:
    """Return the container, which reads the volume where *mount* has it.

    Without a *port* it serves no probe; as *user* it may read what the pod's containers write.
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
    """Return the volumes of its own: positions, and the resource with its credentials."""
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
        # A server without TLS has none; it comes to running pods when that changes.
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
    """Return what the standard `restricted` asks for, and a little more."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        **({} if user is None else {"runAsUser": user}),
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
