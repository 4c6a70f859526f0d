"""The cluster, the namespace and the pipeline that a command is for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from logpipeline.spec import LogPipeline, parse
from logpipeline.spec.api import API_VERSION, COMPONENT_LABEL, PIPELINE_LABEL, PLURAL
from logpipeline_cli.cluster.api import Api, Forbidden, Manifest, NotFound, connected, path
from logpipeline_cli.cluster.kubectl import Kubectl
from logpipeline_cli.errors import CliError

NAMES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, and the chosen namespace in it."""

    kubectl: Kubectl
    api: Api
    namespace: str


@dataclass(frozen=True, slots=True)
class Found:
    """A pipeline in a cluster: its resource as the API server has it, and parsed."""

    cluster: Cluster
    resource: Manifest
    pipeline: LogPipeline

    def refresh(self) -> Manifest:
        """Return the resource as it is now."""
        return self.cluster.api.get(_path(self.pipeline.namespace, self.pipeline.name))

    def objects(self, kind: str, component: str) -> list[Manifest]:
        """Return objects of the core API (in plural) that belong to a component."""
        labels = f"{PIPELINE_LABEL}={self.pipeline.name},{COMPONENT_LABEL}={component}"
        where = path("v1", kind, self.pipeline.namespace)
        return self.cluster.api.list(where, labelSelector=labels)


@contextmanager
def session(args: argparse.Namespace) -> Iterator[Cluster]:
    """Connect to the cluster that *args* choose.

    Raises:
        CliError: no cluster is known, or it cannot be used.
    """
    kubectl = Kubectl(args.kubeconfig, args.context)
    config = kubectl.config()
    with connected(config) as api:
        yield Cluster(kubectl, api, args.namespace or _default_namespace(config))


def find(cluster: Cluster, name: str | None) -> Found:
    """Return the pipeline *name*, or the only one of the namespace.

    Raises:
        CliError: there is none, or there are several; the message names them.
        SpecError: this command does not know a field of the resource.
    """
    if name is not None:
        # A user may have the right to get one, but not to list all.
        with suppress(NotFound, Forbidden):
            resource = cluster.api.get(_path(cluster.namespace, name))
            return Found(cluster, resource, parse(resource))
    there = _listed(cluster)
    if name is None and len(there) == 1:
        return Found(cluster, there[0], parse(there[0]))
    raise CliError(_which(cluster.namespace, name, [r["metadata"]["name"] for r in there]))


def _which(namespace: str, name: str | None, names: list[str]) -> str:
    """Return why no pipeline was found, and how to choose one."""
    wanted = f"no LogPipeline {name}" if name else "no LogPipeline"
    if not names:
        return (
            f"there is {wanted} in namespace {namespace}; give -n NAMESPACE (`kubectl get "
            "logpipelines -A` lists all)"
        )
    shown = ", ".join(sorted(names)[:NAMES_SHOWN_MAX])
    if name is None:
        return f"namespace {namespace} has several LogPipelines: {shown}; give --pipeline NAME"
    return f"there is {wanted} in namespace {namespace}; there are: {shown}"


def _listed(cluster: Cluster) -> list[Manifest]:
    try:
        return cluster.api.list(_path(cluster.namespace))
    except NotFound:
        raise CliError(
            "this cluster does not know LogPipelines: the operator is not installed; install its "
            "chart, or `kubectl apply --server-side -f deploy/crd.yaml`"
        ) from None
    except Forbidden as error:
        raise CliError(
            f"you may not see LogPipelines in namespace {cluster.namespace}: {error}; ask for the "
            "right to get and list logpipelines.logpipeline.dev, or give another -n NAMESPACE"
        ) from None


def _path(namespace: str, name: str = "") -> str:
    return path(API_VERSION, PLURAL, namespace, name)


def _default_namespace(config: Manifest) -> str:
    current = config.get("current-context")
    for entry in config.get("contexts") or []:
        if entry.get("name") == current:
            return str((entry.get("context") or {}).get("namespace") or "default")
    return "default"
