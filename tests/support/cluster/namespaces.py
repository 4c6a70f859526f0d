"""A namespace for one test, and its end, whatever the test has left in it.

The API is asked directly: each kubectl is a process that costs more than what it asks for.
"""

from __future__ import annotations

import json
import secrets

from cluster.handle import Cluster

GRACE_S = 1
PIPELINES = {"version": "logpipeline.dev/v1alpha1", "url": "logpipelines"}
NO_FINALIZERS = json.dumps({"metadata": {"finalizers": None}})
MERGE = {"Content-Type": "application/merge-patch+json"}
NOT_FOUND = 404


def create(cluster: Cluster) -> str:
    """Make a namespace with a new name and return that."""
    cluster.renew_volumes()
    name = f"test-{secrets.token_hex(4)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = cluster.api.post(version="v1", url="namespaces", data=json.dumps(manifest))
    answer.raise_for_status()
    return name


def delete(cluster: Cluster, name: str) -> None:
    """Have the namespace deleted and its pods ended; this does not wait until all is gone.

    The API server lets every namespace wait for five seconds, which no test has to see. An operator
    may be away by now: then nobody takes the finalizers off its pipelines but we.
    """
    answer = cluster.api.delete(version="v1", url=f"namespaces/{name}")
    if answer.status_code == NOT_FOUND:
        return
    answer.raise_for_status()
    _free_pipelines(cluster, name)
    # Nobody makes new ones any more: nothing is created in a namespace that ends.
    grace = {"gracePeriodSeconds": GRACE_S}
    cluster.api.delete(version="v1", namespace=name, url="pods", params=grace)


def _free_pipelines(cluster: Cluster, name: str) -> None:
    answer = cluster.api.get(**PIPELINES, namespace=name)
    if answer.status_code == NOT_FOUND:
        return  # without the definition there is none
    answer.raise_for_status()
    for pipeline in answer.json()["items"]:
        one = {**PIPELINES, "url": f"logpipelines/{pipeline['metadata']['name']}"}
        freed = cluster.api.patch(**one, namespace=name, data=NO_FINALIZERS, headers=MERGE)
        if freed.status_code != NOT_FOUND:  # its operator may have been quicker
            freed.raise_for_status()
