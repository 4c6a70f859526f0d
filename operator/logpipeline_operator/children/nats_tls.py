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
# The files that the server's pods get; only the operator reads the authority's key.
SERVER_FILES = (CA_FILE, CERTIFICATE_FILE, KEY_FILE)
# The certificate that a pod's server was started with, and the authorities that it trusts.
MARK_ANNOTATION = f"{GROUP}/nats-tls"


def is_on(pipeline: LogPipeline) -> bool:
    """Return whether the managed server of *pipeline* speaks TLS. If the resource leaves it open,
    call `decided` first.
    """
    nats = pipeline.spec.nats
    return not nats.servers and nats.managed.tls in (REQUIRED, OPTIONAL)


def takes_plain(pipeline: LogPipeline) -> bool:
    """Return whether that server also accepts clients without TLS."""
    return pipeline.spec.nats.managed.tls == OPTIONAL


def decided(pipeline: LogPipeline, *, began_with_tls: bool) -> LogPipeline:
    """Return *pipeline* with TLS decided if the resource leaves it open: a server that
    *began_with_tls* requires it. An older one goes on without, since existing sidecars do not have
    its certificate.
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
    """Return the mark of a server: the fingerprints of its issuer, trusted authorities and own
    *certificate*.
    """
    return f"{issuer}/{','.join(trusted)}/{certificate}"


def cannot_join(one: str, other: str) -> bool:
    """Return whether servers with these marks cannot join: only one of them speaks TLS, or one does
    not trust the issuer of the other's certificate.
    """
    if not one or not other:
        return one != other
    issuer, trusted, _ = one.split("/")
    their_issuer, their_trusted, _ = other.split("/")
    return issuer not in their_trusted.split(",") or their_issuer not in trusted.split(",")
