"""The pods of every component, with the resource's settings. They pass Pod Security `restricted`,
except shippers: they read other pods' logs, which is documented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import GROUP
from logpipeline.spec.pods import PodOptions
from logpipeline_operator.children import model
from logpipeline_operator.children.model import (
    ChildSettings,
    Component,
    Manifest,
    NoImage,
    canonical_resources,
    given,
    without_nulls,
)

USER = 65532
CONFIG_HASH_ANNOTATION = f"{GROUP}/config-hash"
LAST_WORDS = "FallbackToLogsOnError"
HOSTNAME_TOPOLOGY = "kubernetes.io/hostname"

RESTRICTED_POD: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    # Else each start would go through all files of a volume, which may be a million.
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# Only root can read the logs of other pods; this is the only additional right.
SHIPPER_POD: Manifest = {
    "runAsNonRoot": False,
    "runAsUser": 0,
    "runAsGroup": 0,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SHIPPER_CONTAINER: Manifest = {
    **RESTRICTED_CONTAINER,
    "capabilities": {"drop": ["ALL"], "add": ["DAC_READ_SEARCH"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The settings of the container that differ between components."""

    args: Sequence[str]
    env: Sequence[Manifest]
    ports: Sequence[Manifest]
    mounts: Sequence[Manifest]
    probes: Manifest
    security: Manifest
    command: Sequence[str] = ()
    # Whether Kubernetes copies the end of its log into the pod's status when it fails.
    tells_last_words: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The settings of pods that differ between components."""

    component: Component
    # The resource's field for the image, for messages.
    field: str
    options: PodOptions
    container: Container
    volumes: Sequence[Manifest]
    security: Manifest
    service_account: str
    resources: Manifest
    grace_s: int
    config_hash: str
    has_token: bool = False
    # Prefer different nodes for the pods of the component.
    is_spread: bool = False


def template(pipeline: LogPipeline, pods: Pods, settings: ChildSettings) -> Manifest:
    """Return the template of a component's pods.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    options = pods.options
    return {
        "metadata": {
            "labels": {**options.pod_labels, **model.labels(pipeline, pods.component)},
            "annotations": {
                **options.pod_annotations,
                CONFIG_HASH_ANNOTATION: pods.config_hash,
            },
        },
        "spec": {
            "serviceAccountName": options.service_account_name or pods.service_account,
            "automountServiceAccountToken": pods.has_token,
            # Else a Service called logpipeline would set variables that look like settings.
            "enableServiceLinks": False,
            # The first process of a namespace gets only signals that it handles. Without this, a
            # program that is stopped during its start would run on until it is killed, minutes
            # later.
            "shareProcessNamespace": True,
            "securityContext": pods.security,
            "terminationGracePeriodSeconds": _grace_s(pods),
            "containers": [_container(pods, settings)],
            "volumes": [*pods.volumes, {"name": "tmp", "emptyDir": {}}],
            **given(
                {
                    "imagePullSecrets": _pull_secrets(options, settings),
                    "nodeSelector": options.node_selector,
                    "tolerations": without_nulls(options.tolerations),
                    "affinity": without_nulls(options.affinity),
                    "topologySpreadConstraints": _spread(pipeline, pods),
                    "priorityClassName": options.priority_class_name,
                }
            ),
        },
    }


def from_field(name: str, path: str) -> Manifest:
    """Return the environment variable *name* that holds a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def literal(text: str) -> str:
    """Return *text* as an argument: a `$(NAME)` in it is not replaced."""
    return text.replace("$(", "$$(")


def http_probe(path: str, port: str, *, period_s: int, failures: int) -> Manifest:
    """Return a probe that asks *path*, and gives up after *failures* in a row."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def component_probes() -> Manifest:
    """Return the probes of our own components, which serve them on the port `http`."""
    return {
        # Positions of thousands of files are read before the page is served.
        "startupProbe": http_probe("/healthz", "http", period_s=2, failures=150),
        "livenessProbe": http_probe("/healthz", "http", period_s=10, failures=6),
        "readinessProbe": http_probe("/readyz", "http", period_s=5, failures=2),
    }


def _container(pods: Pods, settings: ChildSettings) -> Manifest:
    container, options = pods.container, pods.options
    image = options.image or settings.install.image(pods.component)
    if not image:
        raise NoImage(pods.component, pods.field)
    resources = pods.resources if options.resources is None else options.resources
    ours = {entry["name"] for entry in container.env}
    # Values may use earlier variables, so the order of the user stays.
    env = [*container.env, *_last_of_each_name(options.env, ours)]
    return {
        "name": pods.component.value,
        "image": image,
        "args": list(container.args),
        "ports": [{"protocol": "TCP", **port} for port in container.ports],
        "volumeMounts": [*container.mounts, {"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": container.security,
        **container.probes,
        **given(
            {
                "terminationMessagePolicy": LAST_WORDS if container.tells_last_words else None,
                "command": list(container.command),
                "env": env,
                "imagePullPolicy": options.image_pull_policy or settings.install.image_pull_policy,
                "resources": canonical_resources(without_nulls(resources)),
            }
        ),
    }


def _last_of_each_name(env: Sequence[Manifest], taken: set[str]) -> list[Manifest]:
    """Return *env* without the names *taken*; of two entries with one name only the last, since the
    API server refuses both.
    """
    found: dict[object, Manifest] = {}
    for entry in env:
        if entry.get("name") not in taken:
            found[entry.get("name")] = without_nulls(entry)
    return list(found.values())


def _grace_s(pods: Pods) -> int:
    chosen = pods.options.termination_grace_period_seconds
    return pods.grace_s if chosen is None else chosen


def pull_secrets(settings: ChildSettings) -> list[Manifest]:
    """Return the Secrets for pulling the operator's own images."""
    return [{"name": name} for name in settings.install.image_pull_secrets]


def _pull_secrets(options: PodOptions, settings: ChildSettings) -> list[Manifest]:
    chosen = [dict(secret) for secret in options.image_pull_secrets]
    return chosen or pull_secrets(settings)


def _spread(pipeline: LogPipeline, pods: Pods) -> list[Manifest]:
    chosen = pods.options.topology_spread_constraints
    if chosen or pods.options.affinity or not pods.is_spread:
        return list(without_nulls(chosen))
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME_TOPOLOGY,
            # Several pods on one node are better than missing pods.
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": model.selector(pipeline, pods.component)},
        }
    ]
