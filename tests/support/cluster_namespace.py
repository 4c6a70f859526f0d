"""A namespace for one test, and its end, whatever the test has left in it."""

from __future__ import annotations

import secrets
import time

from cluster_handle import Cluster, CommandFailed

END_DEADLINE_S = 60.0
POLL_S = 0.2


def create(cluster: Cluster) -> str:
    """Make a namespace with a new name and return that."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    return name


def delete(cluster: Cluster, name: str) -> None:
    """Delete the namespace, wait until it is gone, and offer the volumes of its claims again.

    An operator may be away by now: then nobody takes the finalizers off its pipelines but we.

    Raises:
        CommandFailed: it stays; with what the API server says about it.
    """
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
    _free_pipelines(cluster, name)
    deadline = time.monotonic() + END_DEADLINE_S
    while cluster.kubectl("get", "namespace", name, "--ignore-not-found", "-o", "name"):
        if time.monotonic() > deadline:
            status = cluster.kubectl("get", "namespace", name, "-o", "jsonpath={.status}")
            raise CommandFailed(f"namespace {name} is still there: {status}")
        time.sleep(POLL_S)
    cluster.renew_volumes()


def _free_pipelines(cluster: Cluster, name: str) -> None:
    here = f"--namespace={name}"
    found = cluster.kubectl("get", "logpipelines", here, "-o", "name", check=False)
    patch = ("--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
    for pipeline in found.split():
        if pipeline.startswith("logpipeline"):
            cluster.kubectl("patch", pipeline, here, *patch, check=False)
