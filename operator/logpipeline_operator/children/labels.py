"""Labels, selectors and owners of children. Selectors are fixed for the life of a StatefulSet, so
they hold only what never changes.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.model import API_VERSION, KIND
from logpipeline_operator.children.model import Component, Manifest

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
PIPELINE_LABEL = "logpipeline.dev/pipeline"
# Only on what lies in no namespace, or in one of others that shippers read.
NAMESPACE_LABEL = "logpipeline.dev/namespace"
# Of claims of a managed server whose streams lie in an account.
ACCOUNTS_LABEL = "logpipeline.dev/nats-accounts"
# Of claims of a managed server that speaks TLS unless its resource says otherwise.
TLS_LABEL = "logpipeline.dev/nats-tls"

NAME = "logpipeline"
MANAGED_BY = "logpipeline-operator"
OPERATOR_COMPONENT = "operator"


def selector(pipeline: LogPipeline, component: Component) -> dict[str, str]:
    """Return the labels by which pods of *component* are found."""
    return {
        NAME_LABEL: NAME,
        INSTANCE_LABEL: pipeline.name,
        COMPONENT_LABEL: component.value,
    }


def labels(pipeline: LogPipeline, component: Component | None = None) -> dict[str, str]:
    """Return the labels of a child."""
    found = {
        NAME_LABEL: NAME,
        INSTANCE_LABEL: pipeline.name,
        MANAGED_BY_LABEL: MANAGED_BY,
        PIPELINE_LABEL: pipeline.name,
    }
    return found if component is None else found | selector(pipeline, component)


def metadata(pipeline: LogPipeline, name: str, component: Component | None = None) -> Manifest:
    """Return the metadata of the child *name*, which Kubernetes removes with the pipeline."""
    found: Manifest = {
        "name": name,
        "namespace": pipeline.namespace,
        "labels": labels(pipeline, component),
    }
    if pipeline.uid:
        found["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": pipeline.name,
                "uid": pipeline.uid,
                "controller": True,
                # Else deleting the pipeline in the foreground would wait for every pod's files.
                "blockOwnerDeletion": False,
            }
        ]
    return found
