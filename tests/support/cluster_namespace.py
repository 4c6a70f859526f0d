"""A namespace for one test, and its end, whatever the test has left in it."""

from __future__ import annotations

import secrets

from cluster_handle import Cluster

GRACE_S = 1


def create(cluster: Cluster) -> str:
    """Make a namespace with a new name and return that."""
    cluster.renew_volumes()
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    return name


def delete(cluster: Cluster, name: str) -> None:
    """Have the namespace deleted and its pods ended; this does not wait until all is gone.

    The API server lets every namespace wait for five seconds, which no test has to see. An operator
    may be away by now: then nobody takes the finalizers off its pipelines but we.
    """
    here = f"--namespace={name}"
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
    _free_pipelines(cluster, here)
    # Nobody makes new ones any more: nothing is created in a namespace that ends.
    grace = f"--grace-period={GRACE_S}"
    cluster.kubectl("delete", "pods", "--all", here, grace, "--wait=false", check=False)


def _free_pipelines(cluster: Cluster, here: str) -> None:
    found = cluster.kubectl("get", "logpipelines", here, "-o", "name", check=False)
    patch = ("--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
    for pipeline in found.split():
        if pipeline.startswith("logpipeline"):
            cluster.kubectl("patch", pipeline, here, *patch, check=False)
