"""The resource as each component reads it: with servers and files filled in, and without fields
that the component does not use. So a change of such a field, as when scaling, restarts no pod.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import yaml

from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import LogPipeline, LogPipelineSpec, dump
from logpipeline.spec.components import (
    FilePatterns,
    Local,
    LocalNats,
    LocalShipper,
    Shippers,
)
from logpipeline.spec.declaration import rule_of
from logpipeline.spec.pods import PodOptions
from logpipeline.spec.streams import Nats, Stream
from logpipeline.spec.table import S3, TableVolume
from logpipeline_operator.children import credentials, model, nats_tls
from logpipeline_operator.children.model import NATS_PORT, Component, Manifest

FOLDER = PurePosixPath("/etc/logpipeline")
NATS_FOLDER = "nats"
# The pod's own token, below NATS_FOLDER.
TOKEN_PATH = "token/token"
FILE = "pipeline.yaml"
TABLE = "/table"
BUCKET = "s3://"
POD_LOGS = "/var/log/pods"
NODE_SHIPPER = "node"
SIDECAR_SHIPPER = "sidecar"
# The file of sidecars. Those of pods that were made before there was TLS read FILE, and do not have
# the server's certificate.
SIDECAR_FILE = "sidecar.yaml"
# The default of the files that `logpipeline inject` ships from a pod.
SIDECAR_FILES = "/var/log/app/*.log"

PartT = TypeVar("PartT", bound=PodOptions)
# The folders in which kubelet and runtimes keep the logs of containers.
_CONTAINER_LOGS = ("/var/log/pods/**", "/var/log/containers/**", "/var/lib/docker/containers/**")


def servers(pipeline: LogPipeline) -> tuple[str, ...]:
    """Return the URLs of the pipeline's servers: the user's, or the managed one's Service."""
    managed = f"nats://{nats_tls.server_name(pipeline)}:{NATS_PORT}"
    return pipeline.spec.nats.servers or (managed,)


def nats_options(pipeline: LogPipeline, folder: Path) -> NatsOptions:
    """Return how the operator reaches the pipeline's NATS, with its credentials in *folder*."""
    local = credentials.local_nats(pipeline, credentials.OPERATOR, folder)
    files: dict[str, Any] = {
        field: Path(path)
        for field in NatsOptions.__dataclass_fields__
        if field.endswith("_file") and (path := getattr(local, field)) is not None
    }
    return NatsOptions(
        servers=servers(pipeline),
        js_domain=pipeline.spec.nats.js_domain,
        tls_first=pipeline.spec.nats.tls_first,
        inbox_prefix=local.inbox_prefix,
        **files,
    )


def for_collector(pipeline: LogPipeline) -> LogPipeline:
    """Return *pipeline* as collectors read it."""
    spec = replace(
        _common(pipeline),
        collectors=_for_pods(pipeline.spec.collectors),
        local=Local(nats=_local_nats(pipeline, credentials.COLLECTOR)),
    )
    return LogPipeline(name=pipeline.name, namespace=pipeline.namespace, spec=spec)


def for_table(pipeline: LogPipeline) -> LogPipeline:
    """Return *pipeline* as its table's job reads it."""
    given = pipeline.spec.table
    volume = given.persistence
    claim = volume.existing_claim if volume is not None else None
    spec = replace(
        _common(pipeline),
        table=replace(
            _for_pods(given),
            enabled=True,
            path=table_path(pipeline),
            every_ns=given.interval_ns,
            # Only the claim: settings of a new volume do not restart the pod.
            persistence=TableVolume(existing_claim=claim) if claim else None,
            s3=S3(endpoint=given.s3.endpoint, region=given.s3.region),
        ),
        local=Local(nats=_local_nats(pipeline, credentials.TABLE)),
    )
    return LogPipeline(name=pipeline.name, namespace=pipeline.namespace, spec=spec)


def for_callout(pipeline: LogPipeline) -> LogPipeline:
    """Return *pipeline* as the callout of its server reads it."""
    spec = replace(
        _common(pipeline),
        shippers=Shippers(service_account_name=pipeline.spec.shippers.service_account_name),
        local=Local(nats=_local_nats(pipeline, credentials.CALLOUT)),
    )
    return LogPipeline(name=pipeline.name, namespace=pipeline.namespace, spec=spec)


def table_path(pipeline: LogPipeline) -> str:
    """Return the path of the table in its pods. A relative path is for local mode, so not used."""
    path = pipeline.spec.table.path or ""
    return path if path.startswith(("/", BUCKET)) else TABLE


def for_shipper(pipeline: LogPipeline, *, has_token: bool = False) -> LogPipeline:
    """Return *pipeline* as the shipper of a node reads it, which logs in with the token of its pod
    if it *has_token*.
    """
    shippers = pipeline.spec.shippers
    nats = _local_nats(pipeline, credentials.SHIPPER)
    if has_token:
        token = str(FOLDER / NATS_FOLDER / TOKEN_PATH)
        nats = LocalNats(token_file=token, ca_file=nats.ca_file)
    return _for_shipper(
        pipeline,
        nats,
        LocalShipper(
            name=NODE_SHIPPER,
            files=tuple(_without_container_logs(pipeline, files) for files in shippers.host_files),
            pods=POD_LOGS if shippers.container_logs else None,
        ),
    )


def for_sidecar(pipeline: LogPipeline, *, knows_tls: bool = True) -> LogPipeline:
    """Return *pipeline* as a sidecar reads it; one that was added before there was TLS does not
    have the server's certificate: *knows_tls* is false.
    """
    files = (FilePatterns(include=(SIDECAR_FILES,)),)
    nats = _local_nats(pipeline, credentials.SHIPPER)
    if nats_tls.is_on(pipeline) and not knows_tls:
        nats = replace(nats, ca_file=None)
    return _for_shipper(pipeline, nats, LocalShipper(name=SIDECAR_SHIPPER, files=files))


def render(pipeline: LogPipeline) -> str:
    """Return the resource as YAML: equal resources as equal texts."""
    return yaml.safe_dump(dump(pipeline), sort_keys=True, allow_unicode=True, width=100)


def config_map(
    pipeline: LogPipeline,
    name: str,
    component: Component,
    text: str,
    more: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the ConfigMap *name* with the resource *text*, and *more* texts by their keys."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": model.metadata(pipeline, name, component),
        "data": {FILE: text, **(more or {})},
    }


def volume(
    pipeline: LogPipeline, config_map_name: str, role: str | None, files: Sequence[str] = (FILE,)
) -> Manifest:
    """Return the volume below FOLDER: the *files* of a ConfigMap, the credentials of *role*, if
    there is one, and the certificates of a managed server.
    """
    login = credentials.projections(pipeline, role, NATS_FOLDER)
    items = [{"key": file, "path": file} for file in files]
    return {
        "name": "config",
        "projected": {
            # Its owner is root; only the pod's group may read it.
            "defaultMode": 0o440,
            "sources": [
                {"configMap": {"name": config_map_name, "items": items}},
                *login,
            ],
        },
    }


def hash_of(*parts: Any) -> str:
    """Return a hash of the files that a pod reads; of Secrets only the names count."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def reads_all_namespaces(pipeline: LogPipeline) -> bool:
    """Return whether shippers read the logs of pods in all namespaces; by default they do not."""
    return pipeline.spec.shippers.pod_namespaces == "All"


def selects_namespaces(pipeline: LogPipeline) -> bool:
    """Return whether a selector of namespaces decides whose pods' logs shippers read."""
    return pipeline.spec.shippers.pod_namespaces == "Selector"


def _without_container_logs(pipeline: LogPipeline, files: FilePatterns) -> FilePatterns:
    """Return *files*; a glob must not match logs of pods that are not selected."""
    more = () if reads_all_namespaces(pipeline) else _CONTAINER_LOGS
    return FilePatterns(include=files.include, exclude=(*files.exclude, *more), ack=files.ack)


def _for_shipper(pipeline: LogPipeline, nats: LocalNats, local: LocalShipper) -> LogPipeline:
    spec = replace(
        _common(pipeline),
        batch=pipeline.spec.batch,
        redaction=pipeline.spec.redaction,
        shippers=_for_pods(pipeline.spec.shippers),
        local=Local(nats=nats, shippers=(local,)),
    )
    return LogPipeline(name=pipeline.name, namespace=pipeline.namespace, spec=spec)


def _common(pipeline: LogPipeline) -> LogPipelineSpec:
    spec = pipeline.spec
    return LogPipelineSpec(
        cluster=spec.cluster,
        subject=spec.subject,
        partitions=spec.partitions,
        nats=Nats(
            servers=servers(pipeline),
            js_domain=spec.nats.js_domain,
            tls_first=spec.nats.tls_first,
        ),
        stream=_stream(spec.stream),
    )


def _stream(stream: Stream) -> Stream:
    """Return what pods need of the streams to find them, and to read one of all partitions."""
    if stream.layout == "single":
        foreign = stream.foreign_partitions
        return Stream(layout=stream.layout, name=stream.name, foreign_partitions=foreign)
    return Stream(name=stream.name)


def _local_nats(pipeline: LogPipeline, role: str) -> LocalNats:
    return credentials.local_nats(pipeline, role, FOLDER / NATS_FOLDER)


def _for_pods(part: PartT) -> PartT:
    """Return *part* without fields that only the operator reads."""
    of_pods = {field.name for field in fields(PodOptions)}
    return type(part)(
        **{
            field.name: getattr(part, field.name)
            for field in fields(part)
            if field.name not in of_pods and not rule_of(field).is_for_operator
        }
    )
