"""Reads from EndpointSlices whether a pipeline's Services lead to its pods: a pod that says that it
is ready helps nobody who cannot reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logpipeline_operator.children.labels import COMPONENT_LABEL
from logpipeline_operator.status.finding import Finding
from logpipeline_operator.status.pods import PARTS, is_ready
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import listed

Manifest = Mapping[str, Any]

# By which Kubernetes tells whose slice it is.
SERVICE_LABEL = "kubernetes.io/service-name"


def problems(
    desired: Iterable[Manifest], slices: Sequence[Manifest], pods: Sequence[Manifest]
) -> list[Finding]:
    """Return which Services of *desired* do not lead to the *pods* that they are for; one whose
    pods are not ready is not meant, as these have findings of their own.
    """
    services = [manifest for manifest in desired if manifest["kind"] == "Service"]
    return [finding for service in services for finding in _of_service(service, slices, pods)]


def _of_service(
    service: Manifest, slices: Sequence[Manifest], pods: Sequence[Manifest]
) -> Iterator[Finding]:
    name, selector = str(service["metadata"]["name"]), dict(service["spec"]["selector"])
    ready = {
        str(pod["metadata"]["uid"]): pod
        for pod in pods
        if is_ready(pod) and selector.items() <= (pod["metadata"].get("labels") or {}).items()
    }
    reached = ready.keys() & set(_reached(name, slices))
    # Of those that end, each may be the last one; while there are others they are not missed.
    missed = sorted(
        str(pod["metadata"]["name"])
        for uid, pod in ready.items()
        if uid not in reached and "deletionTimestamp" not in pod["metadata"]
    )
    if ready and not reached:
        what = f"Service {name} leads to no pod"
    elif missed:
        what = f"Service {name} does not lead to {listed(missed)}"
    else:
        return
    part = PARTS[selector[COMPONENT_LABEL]]
    yield Finding(reason=Reason.NO_ENDPOINTS, part=part, what=what)


def _reached(service: str, slices: Iterable[Manifest]) -> Iterator[str]:
    """Yield the uids of the pods that *service* leads to."""
    for each in slices:
        if (each["metadata"].get("labels") or {}).get(SERVICE_LABEL) != service:
            continue
        for endpoint in each.get("endpoints") or []:
            # What is not said counts as ready.
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                yield str((endpoint.get("targetRef") or {}).get("uid", ""))
