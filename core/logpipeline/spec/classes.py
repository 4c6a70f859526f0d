"""The resource `LogPipelineClass`: what an administrator allows LogPipelines beyond the rights of
their authors. What it does not name is not allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from logpipeline.spec.api import API_VERSION, CLASS_KIND
from logpipeline.spec.components import PodNamespaces
from logpipeline.spec.declaration import CrossRule, spec
from logpipeline.spec.mistakes import Mistake, SpecError, shown
from logpipeline.spec.parse import Reader
from logpipeline.spec.pods import LabelSelector
from logpipeline.spec.rules import check_object
from logpipeline.spec.streams import GIB

# The class of a LogPipeline that names none.
DEFAULT_CLASS = "default"
# A name, or the beginning of names and a star.
NAMED = r"^[^*\x00-\x20\x7f]*\*?$"
FOLDER = r"^/[^*?\x00-\x1f\x7f]*$"
ENTRIES_MAX = 64


def _names(description: str, *, default: tuple[str, ...] = (), example: str) -> Any:
    return spec(
        description,
        default=default, max_items=ENTRIES_MAX, min_length=1, max_length=253, pattern=NAMED,
        example=example, unique_by="",
    )  # fmt: skip


def _folders(description: str, *, default: tuple[str, ...] = (), example: str) -> Any:
    return spec(
        description,
        default=default, max_items=ENTRIES_MAX, min_length=1, max_length=253, pattern=FOLDER,
        example=example, unique_by="",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one pipeline; a ResourceQuota limits all of a namespace together."""

    partitions: int = spec("Partitions.", default=100, minimum=0, maximum=1024)
    collectors: int = spec("Collectors.", default=32, minimum=0, maximum=1024)
    executors: int = spec("Executors of Spark.", default=16, minimum=0, maximum=1000)
    storage: int = spec("Size of one volume.", default=1024 * GIB, unit="bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPipelineClassSpec:
    """The choices of pipelines of the class. An entry of a list of names is a name, or the
    beginning of names and a `*`; a folder stands for all that is in it.
    """

    namespaces: tuple[str, ...] = _names(
        "Namespaces whose pipelines may be of this class.", default=("*",), example="team-*"
    )
    pod_namespaces: PodNamespaces = spec(
        "Namespaces whose pods' logs are read at most: the pipeline's own, those that "
        "podNamespaceSelector selects, or all.",
        default="Own",
    )
    pod_namespace_selector: LabelSelector | None = spec(
        "With podNamespaces: Selector, which namespaces.", default=None
    )
    host_files: tuple[str, ...] = _folders(
        "Folders of nodes whose files may be read; logs of containers are never among them where "
        "podNamespaces is not All.",
        example="/var/log",
    )
    host_paths: tuple[str, ...] = _folders(
        "Folders of nodes that may be written to: for positions, as root, and for collectors.",
        example="/srv/logs",
    )
    directories: tuple[str, ...] = _folders(
        "Folders of collectors' pods at which their volume may be mounted.",
        default=("/data",), example="/data",
    )  # fmt: skip
    table_by_default: bool = spec(
        "Whether pipelines keep a table that do not say whether they do.", default=False
    )
    images: tuple[str, ...] = _names(
        "Images that pods may run beside the operator's own.", example="registry.example.net/logs/*"
    )
    image_pull_secrets: tuple[str, ...] = _names(
        "Secrets that images may be pulled with.", example="registry"
    )
    service_accounts: tuple[str, ...] = _names(
        "ServiceAccounts that pods may use beside those that are made for them.",
        example="logs-to-s3",
    )
    secrets: tuple[str, ...] = _names(
        "Secrets of the pipeline's namespace that are read for it, and shown to its servers.",
        example="nats-*",
    )
    env: tuple[str, ...] = _names("Environment variables that pods may be given.", example="TZ")
    env_from: bool = spec(
        "Whether an environment variable may take its value from a Secret, a ConfigMap or the pod.",
        default=False,
    )
    pod_labels: tuple[str, ...] = _names(
        "Labels that pods may be given.", example="example.net/team"
    )
    pod_annotations: tuple[str, ...] = _names(
        "Annotations that pods may be given.", example="prometheus.io/*"
    )
    node_labels: tuple[str, ...] = _names(
        "Labels of nodes that a nodeSelector may name.", example="kubernetes.io/os"
    )
    tolerations: tuple[str, ...] = _names(
        "Taints of nodes that may be tolerated, by key; only * allows a toleration without a key.",
        example="dedicated",
    )
    affinity: bool = spec("Whether pods may have an affinity.", default=False)
    priority_classes: tuple[str, ...] = _names(
        "Priority classes that pods may have.", example="logging"
    )
    storage_classes: tuple[str, ...] = _names(
        "Storage classes that volumes may have.", default=("*",), example="standard"
    )
    claims: tuple[str, ...] = _names(
        "Claims of the namespace that may be mounted though they were not made for the pipeline.",
        example="logs",
    )
    nats_servers: tuple[str, ...] = _names(
        "URLs of NATS servers that may be used instead of a managed one. Before a * write the host "
        "whole, with a colon or slash behind it; a login, as in nats://user@host, is then refused.",
        example="nats://nats.example.net:4222",
    )
    monitoring_urls: tuple[str, ...] = _names(
        "URLs that the operator may ask for a server's monitoring.",
        example="http://nats.example.net:8222",
    )
    subjects: tuple[str, ...] = _names(
        "Subjects that may be chosen. Pipelines that share servers need some of their own each.",
        default=("*",), example="team-a.*",
    )  # fmt: skip
    streams: tuple[str, ...] = _names(
        "Names of streams that may be chosen; see subjects.", default=("*",), example="TEAM_A_*"
    )
    adopt: bool = spec(
        "Whether streams, and objects of Kubernetes, that others made may be taken over.",
        default=False,
    )
    tables: tuple[str, ...] = _names(
        "Where tables may lie other than on a volume of their own.", example="s3://logs/*"
    )
    s3_endpoints: tuple[str, ...] = _names(
        "Servers that speak S3, beside AWS.", example="https://s3.example.net:9000"
    )
    catalogs: tuple[str, ...] = _names(
        "URIs of Iceberg's catalogs.", example="https://catalog.example.net"
    )
    catalog_properties: tuple[str, ...] = _names(
        "Properties of catalogs that may be set. Some name code that is run.", example="table"
    )
    runners: tuple[str, ...] = _names("Where Spark may run.", default=("*",), example="embedded")
    limits: Limits = spec("How much one pipeline may ask for.", factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPipelineClass:
    """A class: its name, and what it allows."""

    name: str
    spec: LogPipelineClassSpec = field(default_factory=LogPipelineClassSpec)


CLASS_RULES = (
    CrossRule(
        "class-selects-namespaces",
        LogPipelineClassSpec,
        "podNamespaceSelector",
        "has(self.spec.podNamespaceSelector) == (self.spec.podNamespaces == 'Selector')",
        "belongs to podNamespaces: Selector, and is needed by it",
        lambda spec: (spec.pod_namespace_selector is not None) == _is_selecting(spec),
    ),
)


def _is_selecting(spec: LogPipelineClassSpec) -> bool:
    return spec.pod_namespaces == "Selector"


def parse_class(resource: Any) -> LogPipelineClass:
    """Return the LogPipelineClass that *resource* is.

    Raises:
        SpecError: it has mistakes; the error holds all of them.
    """
    wanted = {"apiVersion": API_VERSION, "kind": CLASS_KIND}
    for key, value in wanted.items():
        found = resource.get(key) if isinstance(resource, dict) else resource
        if found != value:
            raise SpecError((Mistake(key, f"expected {value}, found {shown(found)}"),))
    name = (resource.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise SpecError((Mistake("metadata.name", "is missing: what the class is called"),))
    reader = Reader(_check)
    found = reader.object(LogPipelineClassSpec, resource.get("spec") or {}, "spec")
    if reader.mistakes:
        raise SpecError(tuple(reader.mistakes))
    return LogPipelineClass(name=name, spec=found)


def _check(value: Any, path: str) -> Iterator[Mistake]:
    """Yield the mistakes in *value*, the part of a class at *path*."""
    yield from check_object(value, path)
    for rule in CLASS_RULES:
        if isinstance(value, rule.kind) and not rule.holds(value):
            yield Mistake(f"{path}.{rule.path}", rule.message)
