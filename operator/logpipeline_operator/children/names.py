"""What the children of a pipeline are called. The longest, with what Kubernetes appends, has to fit
the 63 characters of a label.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline


def collector(pipeline: LogPipeline) -> str:
    """Return the name of all that belongs to collectors."""
    return f"{pipeline.name}-collector"


def shipper(pipeline: LogPipeline) -> str:
    """Return the name of all that belongs to shippers."""
    return f"{pipeline.name}-shipper"


def sidecar(pipeline: LogPipeline) -> str:
    """Return the name of what shippers in other pods read."""
    return f"{pipeline.name}-sidecar"


def nats(pipeline: LogPipeline) -> str:
    """Return the name of all that belongs to the managed server."""
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
    """Return the name of the ConfigMap with what clients of the managed server trust."""
    return f"{pipeline.name}-nats-ca"


def table(pipeline: LogPipeline) -> str:
    """Return the name of all that belongs to the table."""
    return f"{pipeline.name}-table"


def table_auth(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the table's user of the managed server."""
    return f"{pipeline.name}-nats-auth-table"


def reader(pipeline: LogPipeline) -> str:
    """Return the name of the ServiceAccount as which people look at the managed server."""
    return f"{pipeline.name}-reader"


def callout_auth(pipeline: LogPipeline) -> str:
    """Return the name of the Secret with the callout's user of the managed server."""
    return f"{pipeline.name}-nats-auth-callout"


def executor(pipeline: LogPipeline) -> str:
    """Return the name of the objects that are made for the table's executors."""
    return f"{pipeline.name}-executor"


def binding_name(namespace: str, name: str) -> str:
    """Return the name of the shippers' bindings of *namespace*/*name* that lie elsewhere: the
    ClusterRoleBinding, or the RoleBindings of the namespaces that they read.
    """
    return f"logpipeline-shipper:{namespace}:{name}"
