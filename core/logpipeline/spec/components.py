"""The part of the resource that is about collectors, shippers and one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.declaration import Former, spec
from logpipeline.spec.pods import LabelSelector, PodOptions
from logpipeline.spec.streams import (
    DAY_NS,
    MINUTE_NS,
    MS_NS,
    NAME,
    SECOND_NS,
    SUBJECT,
    TIME,
    Acknowledge,
)

MIB = 2**20
# No control character belongs in a path, and none may reach a terminal.
ABSOLUTE = r"^(/|\$\{DATA\}/|~/)[^\x00-\x1f\x7f]*$"
# A part of a path that is not `..`; no pattern of files ends with a slash.
_PART = r"(\.|\.?[^/.\x00-\x1f\x7f][^/\x00-\x1f\x7f]*|\.\.[^/\x00-\x1f\x7f]+)"
FILES = rf"^(/|\$\{{DATA\}}/|~/)({_PART}?/)*{_PART}$"
POD_PATH = r"^/[^\x00-\x1f\x7f]+$"
TEMPLATE = r"^[^\x00-\x1f\x7f]+$"
GLOB_EXAMPLE = "/var/log/*.log"
# From the narrowest to the widest.
PodNamespaces = Literal["Own", "Selector", "All"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file is set aside and a new one begun."""

    max_bytes: int = spec("Size of a file.", default=256 * MIB, unit="bytes", minimum=4096)
    max_age_ns: int = spec("Age of a file.", default=DAY_NS, unit="duration", minimum=SECOND_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """When rotated files are deleted."""

    max_age_ns: int = spec("Age of a rotated file.", default=7 * DAY_NS, unit="duration")
    max_bytes: int | None = spec("Bytes of all files of a collector.", default=None, unit="bytes")
    min_free_percent: int = spec(
        "Free space to keep on the disk.", default=5, minimum=0, maximum=90
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The interval at which lines become durable in files."""

    interval_ns: int = spec(
        "At least this often.",
        default=200 * MS_NS, unit="duration", minimum=MS_NS, maximum=MINUTE_NS,
    )  # fmt: skip
    max_bytes: int = spec(
        "At least after so many bytes.", default=16 * MIB, unit="bytes", minimum=64 * 1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStrategy:
    """The replacement of collector pods."""

    type: Literal["RollingUpdate", "OnDelete"] = spec(
        "One after the other by itself, or when you delete them.", default="RollingUpdate"
    )
    max_unavailable: int | str | None = spec(
        "Pods that may be away: a number or a percentage; before Kubernetes 1.35 always one.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRetention:
    """The fate of a collector's volume."""

    when_deleted: Literal["Retain", "Delete"] = spec("When the pipeline goes.", default="Retain")
    when_scaled: Literal["Retain", "Delete"] = spec(
        "When the collector is scaled away.", default="Retain"
    )


# Kinds of volume other than a claim for each collector, as YAML names them.
VOLUME_KINDS = ("existingClaim", "hostPath", "emptyDir")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDir:
    """A volume that goes with its pod."""

    size_limit: int | None = spec("Most that it holds.", default=None, unit="bytes", minimum=MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persistence:
    """The volume of each collector: a claim of its own, or one of the other kinds."""

    size: int = spec("Size of the claim.", default=10 * 2**30, unit="bytes", minimum=MIB)
    storage_class_name: str | None = spec(
        "Storage class of the claim.", default=None, max_length=253
    )
    retention_policy: ClaimRetention = spec("What becomes of the claim.", factory=ClaimRetention)
    existing_claim: str | None = spec(
        "Name of a claim that is there, in which each collector has a folder; more than one "
        "collector needs ReadWriteMany.",
        default=None, min_length=1, max_length=253,
    )  # fmt: skip
    host_path: str | None = spec(
        "Folder of the node, which is there and which user 65532 may write; each collector has a "
        "folder in it. Pod Security allows it in privileged namespaces only.",
        default=None, max_length=1024, pattern=POD_PATH, example="/srv/logs",
    )  # fmt: skip
    empty_dir: EmptyDir | None = spec(
        "A folder that goes with the pod, and the collected lines with it.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """The number of collectors that may be away at once."""

    enabled: bool = spec("Whether there is a budget.", default=True)
    max_unavailable: int | str | None = spec(
        "Pods that may be away: a number or a percentage.", default=None
    )
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] = spec(
        "Whether pods that are not ready may be evicted.", default="AlwaysAllow"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectors(PodOptions):
    """The collectors: each owns a contiguous range of partitions and writes files."""

    replicas: int = spec(
        "How many collectors. Each keeps one processor busy at most.",
        default=1, minimum=0, maximum=1024,
        former=Former(
            "workers", "is gone: remove it, and set replicas to what the two made together", 1
        ),
        is_for_operator=True,
    )  # fmt: skip
    group: str = spec(
        "Name of the group; each group reads everything.",
        default="main", max_length=32, pattern=NAME, example="main",
    )  # fmt: skip
    deliver_policy: Literal["all", "new", "byStartTime"] = spec(
        "Where the group begins in a partition that it never had: with all that is stored, or with "
        "what is stored from then on, or from a time on. Changed later, it says nothing about "
        "partitions that the group has begun.",
        default="all",
    )
    opt_start_time: str | None = spec(
        "The time to begin at (RFC 3339).",
        default=None, max_length=40, pattern=TIME, is_time=True, example="2026-01-31T12:00:00Z",
    )  # fmt: skip
    on_empty_volume: Literal["Reread", "Continue"] = spec(
        "What a collector does whose volume is empty, or another one than before: read again from "
        "the streams, as far as they reach, what the lost volume had; or go on with what is new. "
        "Both are named in its status.",
        default="Reread",
    )
    directory: str = spec(
        "Folder in the pod; on one machine the data folder takes its place.",
        default="/data", max_length=256, pattern=POD_PATH, example="/data", is_for_operator=True,
    )  # fmt: skip
    path: str = spec(
        "Path of a container's file, of {cluster} {host} {namespace} {pod} {container} "
        "{partition} and strftime.",
        default="{host}/{namespace}/{pod}/{container}.log", max_length=512, pattern=TEMPLATE,
    )  # fmt: skip
    file_path: str = spec(
        "Path of a plain file's file; {path} is the file's own path, with its folders.",
        default="{host}/_files/{path}", max_length=512, pattern=TEMPLATE,
    )  # fmt: skip
    output: Literal["raw", "cri", "json"] = spec(
        "Lines as the program wrote them, as the runtime did, or as JSON.", default="raw"
    )
    rotation: Rotation = spec("When a file is set aside.", factory=Rotation)
    compression: Literal["gzip", "zstd", "none"] = spec(
        "Compression of rotated files.", default="zstd"
    )
    retention: Retention = spec("When rotated files go.", factory=Retention)
    max_open_files: int = spec(
        "Files that are open at once.", default=4096, minimum=16, maximum=1_000_000
    )
    commit: Commit = spec("How often lines become durable.", factory=Commit)
    takeover_after_ns: int = spec(
        "Silence after which another collector takes over.",
        default=10 * SECOND_NS, unit="duration", minimum=SECOND_NS,
    )  # fmt: skip
    snapshot_every_ns: int = spec(
        "How often source positions are stored.",
        default=5 * SECOND_NS, unit="duration", minimum=100 * MS_NS,
    )  # fmt: skip
    update_strategy: UpdateStrategy = spec(
        "How pods are replaced.", factory=UpdateStrategy, is_for_operator=True
    )
    drain_timeout_seconds: int = spec(
        "Seconds that a collector has to hand its partitions over.",
        default=300,
        minimum=0,
        is_for_operator=True,
    )
    persistence: Persistence | None = spec(
        "The volume of each collector; without it a claim of 10Gi.",
        default=None,
        is_for_operator=True,
    )
    pod_disruption_budget: DisruptionBudget = spec(
        "How many may be away at once.", factory=DisruptionBudget, is_for_operator=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatterns:
    """Plain log files."""

    include: tuple[str, ...] = spec(
        "Globs of absolute paths; ** crosses folders.",
        min_items=1, max_items=256, max_length=1024, pattern=FILES, example=GLOB_EXAMPLE,
    )  # fmt: skip
    exclude: tuple[str, ...] = spec(
        "Globs of absolute paths that are left out.",
        factory=tuple, max_items=256, max_length=1024, pattern=FILES, example=GLOB_EXAMPLE,
    )  # fmt: skip
    ack: Acknowledge | None = spec(
        "What is waited for when these are sent; the first entry that fits decides. By default "
        "as spec.batch.ack says.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFiles(FilePatterns):
    """Plain log files of a node. The API server looks at each path by a rule, whose cost it bounds
    by these limits.
    """

    include: tuple[str, ...] = spec(
        "Globs of absolute paths; ** crosses folders.",
        min_items=1, max_items=32, max_length=512, pattern=POD_PATH, example=GLOB_EXAMPLE,
    )  # fmt: skip
    exclude: tuple[str, ...] = spec(
        "Globs of absolute paths that are left out.",
        factory=tuple, max_items=32, max_length=512, pattern=POD_PATH, example=GLOB_EXAMPLE,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Pods by namespace, label and container."""

    namespaces: tuple[str, ...] = spec(
        "In one of these namespaces.", factory=tuple, max_items=256, max_length=63
    )
    labels: dict[str, str] = spec("With all of these labels.", factory=dict)
    container_names: tuple[str, ...] = spec(
        "Only containers of these names.", factory=tuple, max_items=64, max_length=63
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Pods to take or to leave out; the first entry that fits decides."""

    select: PodSelector | None = spec("Take these.", default=None)
    exclude: PodSelector | None = spec("Leave these out.", default=None)
    ack: Acknowledge | None = spec(
        "What is waited for when lines of these are sent; by default as spec.batch.ack says. The "
        "annotation logpipeline.dev/ack of a pod wins.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFiles:
    """The time for which deleted files are kept open to be read to their ends."""

    max_bytes: int = spec("Unread bytes of all of them.", default=256 * MIB, unit="bytes")
    max_age_ns: int = spec("Time since one was deleted.", default=3600 * SECOND_NS, unit="duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipperUpdate:
    """The replacement of shipper pods."""

    max_unavailable: int | str | None = spec(
        "Pods that may be away: a number or a percentage.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shippers(PodOptions):
    """The shippers: one a node, or beside a container."""

    enabled: bool = spec("Whether shippers run.", default=True, is_for_operator=True)
    mode: Literal["daemonset", "sidecar"] = spec(
        "One on each node, or only those that `logpipeline inject` puts into pods.",
        default="daemonset",
        is_for_operator=True,
    )
    tolerations: tuple[dict[str, Any], ...] = spec(
        "Taints of nodes that the pods tolerate; without any, all: every node has logs.",
        factory=tuple, max_items=64,
    )  # fmt: skip
    container_logs: bool = spec("Ship what containers print (/var/log/pods).", default=True)
    host_files: tuple[HostFiles, ...] = spec(
        "Plain files of the node.", factory=tuple, max_items=16, is_for_operator=True
    )
    read_from: Literal["beginning", "end"] = spec(
        "Where a file that is there at the first start is begun.", default="beginning"
    )
    pod_namespaces: PodNamespaces | None = spec(
        "Namespaces whose pods' logs are shipped: the pipeline's own, those that "
        "podNamespaceSelector selects, or all; by default as its class says. `match` chooses among "
        "them.",
        default=None,
    )
    pod_namespace_selector: LabelSelector | None = spec(
        "With podNamespaces: Selector, which namespaces; of those that its class selects, where it "
        "does.",
        default=None,
    )
    match: tuple[Match, ...] = spec(
        "Which pods; the first entry that fits decides.", factory=tuple, max_items=32
    )
    labels: tuple[str, ...] = spec(
        "Pod labels that lines carry.", factory=tuple, max_items=32, max_length=316, unique_by=""
    )
    max_in_flight_bytes: int = spec(
        "Bytes on the way at once.", default=16 * MIB, unit="bytes", minimum=MIB
    )
    deleted_files: DeletedFiles = spec("Deleted files that are not read yet.", factory=DeletedFiles)
    max_open_files: int = spec(
        "Files that are open at once.", default=1024, minimum=16, maximum=1_000_000
    )
    rescan_ns: int = spec(
        "How often folders are looked through.",
        default=2 * SECOND_NS, unit="duration", minimum=100 * MS_NS,
    )  # fmt: skip
    update_strategy: ShipperUpdate = spec(
        "How pods are replaced.", factory=ShipperUpdate, is_for_operator=True
    )
    positions_host_path: str | None = spec(
        "Folder of the node for positions.",
        default=None, max_length=256, pattern=POD_PATH, example="/var/lib/logpipeline",
        is_for_operator=True,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Restrictions of network traffic between the parts."""

    enabled: bool = spec("Whether NetworkPolicies are made.", default=False)


def _path(description: str, example: str) -> Any:
    return spec(description, default=None, max_length=1024, pattern=ABSOLUTE, example=example)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNats:
    """The server of one machine, and credentials, in files."""

    port: int | None = spec(
        "Port of the nats-server that `logpipeline up` starts, on the loopback interface; by "
        "default one that is free.",
        default=None, minimum=1024, maximum=65_535,
    )  # fmt: skip
    ca_file: str | None = _path("Certificate authority.", "/etc/nats/ca.pem")
    cert_file: str | None = _path("Client's certificate.", "/etc/nats/client.pem")
    key_file: str | None = _path("Client's private key.", "/etc/nats/client-key.pem")
    creds_file: str | None = _path("Credentials (JWT and seed).", "/etc/nats/user.creds")
    nkey_file: str | None = _path("nkey seed.", "/etc/nats/user.nk")
    token_file: str | None = _path("Token.", "/etc/nats/token")
    user_file: str | None = _path("User's name.", "/etc/nats/user")
    password_file: str | None = _path("Password.", "/etc/nats/password")
    inbox_prefix: str = spec(
        "Where the server may answer us; a server that allows each user its own inbox only "
        "needs that one here.",
        default="_INBOX", max_length=64, pattern=NAME, example="_INBOX_shipper",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShipper:
    """One shipper of this machine."""

    name: str = spec("Its name.", max_length=63, pattern=NAME, example="machine")
    host: str | None = spec(
        "The host's name; by default the machine's.",
        default=None, max_length=253, pattern=SUBJECT, example="web1.example.net",
    )  # fmt: skip
    files: tuple[FilePatterns, ...] = spec("Plain files.", factory=tuple, max_items=64)
    pods: str | None = _path("A folder like /var/log/pods.", "/var/log/pods")
    hosts_below: str | None = _path(
        "Each folder below it is one more host: <folder>/pods is its /var/log/pods, and below "
        "<folder>/files are its plain files.",
        "${DATA}/hosts",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Settings of `logpipeline up` that Kubernetes does not need; the operator refuses them.

    A path in it may begin with ``${DATA}``, the data folder, or with ``~``.
    """

    nats: LocalNats = spec(
        "The server of this machine, and credentials, in files.", factory=LocalNats
    )
    metrics_port: int | None = spec(
        "The first port for metrics: each part serves its own on the next one; by default on "
        "ports that are free.",
        default=None, minimum=1024, maximum=60_000,
    )  # fmt: skip
    shippers: tuple[LocalShipper, ...] = spec(
        "The shippers of this machine.", factory=tuple, max_items=64, unique_by="name"
    )
