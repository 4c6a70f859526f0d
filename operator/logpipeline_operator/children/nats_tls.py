"""TLS of the managed server: whether it speaks it, under which names, and with which files.

Clients trust what one ConfigMap holds, and read it again at each connect. The keys lie in a Secret
that only the operator and the server's pods read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import GROUP
from logpipeline_operator.children import model, names
from logpipeline_operator.children.model import Component, Manifest

REQUIRED: Final = "Required"
OPTIONAL: Final = "Optional"
DISABLED: Final = "Disabled"

CA_FILE = "ca.crt"
CA_KEY_FILE = "ca.key"
CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
FILES = (CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, KEY_FILE)
# What the server's pods get of them; the authority's key stays with the operator.
SERVER_FILES = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
# With which certificate the server of a pod was started, and whom it trusts.
MARK_ANNOTATION = f"{GROUP}/nats-tls"


def is_on(pipeline: LogPipeline) -> bool:
    """Return whether the managed server of *pipeline* speaks TLS. Where the resource leaves it
    open, `decided` has to say it first.
    """
    nats = pipeline.spec.nats
    return not nats.servers and nats.managed.tls in (REQUIRED, OPTIONAL)


def takes_plain(pipeline: LogPipeline) -> bool:
    """Return whether that server also lets clients in that speak plain text."""
    return pipeline.spec.nats.managed.tls == OPTIONAL


def decided(pipeline: LogPipeline, *, began_with_tls: bool) -> LogPipeline:
    """Return *pipeline* with what it leaves open: a server that *began_with_tls* requires it, and
    one that is older goes on without, since sidecars of others know nothing of it yet.
    """
    nats = pipeline.spec.nats
    if nats.servers or nats.managed.tls is not None:
        return pipeline
    managed = replace(nats.managed, tls=REQUIRED if began_with_tls else DISABLED)
    spec = replace(pipeline.spec, nats=replace(nats, managed=managed))
    return replace(pipeline, spec=spec)


def server_name(pipeline: LogPipeline) -> str:
    """Return the name by which clients call the server."""
    return f"{names.nats(pipeline)}.{pipeline.namespace}.svc"


def server_names(pipeline: LogPipeline) -> tuple[str, ...]:
    """Return all names that the certificate is for: the Service's, and those of its pods, by which
    servers of a cluster call each other.
    """
    service, namespace = names.nats(pipeline), pipeline.namespace
    headless = names.nats_headless(pipeline)
    endings = (namespace, f"{namespace}.svc", f"{namespace}.svc.cluster.local")
    return (
        server_name(pipeline),
        service,
        *(f"{service}.{ending}" for ending in endings if ending != f"{namespace}.svc"),
        *(f"{headless}.{ending}" for ending in endings),
        *(f"*.{headless}.{ending}" for ending in endings),
    )


def secret(pipeline: LogPipeline, data: dict[str, str]) -> Manifest:
    """Return the Secret with the FILES, *data* being these in base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": model.metadata(pipeline, names.nats_tls(pipeline), Component.NATS),
        "type": "Opaque",
        "data": data,
    }


def ca_config_map(pipeline: LogPipeline, bundle: str) -> Manifest:
    """Return the ConfigMap with the certificates that clients trust."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": model.metadata(pipeline, names.nats_ca(pipeline), Component.NATS),
        "data": {CA_FILE: bundle},
    }


def mark(issuer: str, trusted: tuple[str, ...], certificate: str) -> str:
    """Return what a pod says of its server's *certificate*, by whose prints it is and trusts."""
    return f"{issuer}/{','.join(trusted)}/{certificate}"


def cannot_join(one: str, other: str) -> bool:
    """Return whether servers with these marks cannot join: one speaks no TLS and the other does, or
    one does not trust whom the other has its certificate from.
    """
    if not one or not other:
        return one != other
    issuer, trusted, _ = one.split("/")
    their_issuer, their_trusted, _ = other.split("/")
    return issuer not in their_trusted.split(",") or their_issuer not in trusted.split(",")
