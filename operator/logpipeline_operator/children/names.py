"""The names of a pipeline's children. The longest, with the suffixes of Kubernetes, must fit the 63
characters of a label.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline


def collector(pipeline: LogPipeline) -> str:
    """Return the name of the collectors' objects."""
    return f"{pipeline.name}-collector"


def shipper(pipeline: LogPipeline) -> str:
    """Return the name of the shippers' objects."""
    return f"{pipeline.name}-shipper"


def sidecar(pipeline: LogPipeline) -> str:
    """Return the name of the ConfigMap for sidecars."""
    return f"{pipeline.name}-sidecar"


def nats(pipeline: LogPipeline) -> str:
    """Return the name of the managed server's objects."""
    return f"{pipeline.name}-nats"


def nats_headless(pipeline: LogPipeline) -> str:
    """Return the name of the Service by which servers find each other."""
    return f"{pipeline.name}-nats-headless"


def nats_auth(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the managed server's users."""
    return f"{pipeline.name}-nats-auth"


def nats_tls(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the managed server's certificate and its authority."""
    return f"{pipeline.name}-nats-tls"


def nats_ca(pipeline: LogPipeline) -> str:
    """Return the name of the ConfigMap with the certificates that the server's clients trust."""
    return f"{pipeline.name}-nats-ca"


def table(pipeline: LogPipeline) -> str:
    """Return the name of the table's objects."""
    return f"{pipeline.name}-table"


def table_auth(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the table's user of the managed server."""
    return f"{pipeline.name}-nats-auth-table"


def reader(pipeline: LogPipeline) -> str:
    """Return the name of the ServiceAccount as which people read from the managed server."""
    return f"{pipeline.name}-reader"


def callout_auth(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the callout's user of the managed server."""
    return f"{pipeline.name}-nats-auth-callout"


def executor(pipeline: LogPipeline) -> str:
    """Return the name of the objects of the table's executors."""
    return f"{pipeline.name}-executor"


def binding_name(namespace: str, name: str) -> str:
    """Return the name of the shippers' bindings of *namespace*/*name* outside of the pipeline's
    namespace: the ClusterRoleBinding, or the RoleBindings in the namespaces that they read.
    """
    return f"logpipeline-shipper:{namespace}:{name}"
