"""The part of the resource that is about collectors, shippers and one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.fields import spec
from logpipeline.spec.pods import PodOptions
from logpipeline.spec.streams import DAY_NS, NAME, SUBJECT

MIB = 2**20
SECOND_NS = 10**9
ABSOLUTE = r"^(/|\$\{DATA\}|~/).*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file is set aside and a new one begun."""

    max_bytes: int = spec("Size of a file.", default=256 * MIB, unit="bytes", minimum=4096)
    max_age_ns: int = spec("Age of a file.", default=DAY_NS, unit="duration")


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
    """How often lines become durable in files."""

    interval_ns: int = spec("At least this often.", default=200 * 10**6, unit="duration")
    max_bytes: int = spec(
        "At least after so many bytes.", default=16 * MIB, unit="bytes", minimum=64 * 1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStrategy:
    """How pods are replaced."""

    type: Literal["RollingUpdate", "OnDelete"] = spec("The strategy.", default="RollingUpdate")
    max_unavailable: Any = spec(
        "Pods that may be away: a number or a percentage.", default=None, is_open=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRetention:
    """What becomes of a collector's volume."""

    when_deleted: Literal["Retain", "Delete"] = spec("When the pipeline goes.", default="Retain")
    when_scaled: Literal["Retain", "Delete"] = spec(
        "When the collector is scaled away.", default="Retain"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Persistence:
    """The volume of each collector."""

    size: int = spec("Size of the volume.", default=10 * 2**30, unit="bytes")
    storage_class_name: str | None = spec("Storage class.", default=None)
    retention_policy: ClaimRetention = spec("What becomes of it.", factory=ClaimRetention)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """How many collectors may be away at once."""

    enabled: bool = spec("Whether there is a budget.", default=True)
    max_unavailable: Any = spec("A number or a percentage.", default=None, is_open=True)
    unhealthy_pod_eviction_policy: Literal["IfHealthyBudget", "AlwaysAllow"] = spec(
        "Whether unready pods may be evicted.", default="AlwaysAllow"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectors(PodOptions):
    """The collectors: each owns a contiguous range of partitions and writes files."""

    replicas: int = spec("How many collectors.", default=1, minimum=0, maximum=1024)
    group: str = spec(
        "Name of the group; each group reads everything.",
        default="main",
        max_length=32,
        pattern=NAME,
    )
    workers: int = spec("Processes of a collector.", default=1, minimum=1, maximum=64)
    directory: str = spec("Folder in the pod.", default="/data", max_length=256, pattern=r"^/.+")
    path: str = spec(
        "Path of a container's file, of {cluster} {host} {namespace} {pod} {container} "
        "{partition} and strftime.",
        default="{host}/{namespace}/{pod}/{container}.log", max_length=512,
    )  # fmt: skip
    file_path: str = spec(
        "Path of a plain file's file; {path} is the file's own path.",
        default="{host}/_files/{path}",
        max_length=512,
    )
    output: Literal["raw", "cri", "json"] = spec("Format of the lines.", default="raw")
    rotation: Rotation = spec("When a file is set aside.", factory=Rotation)
    compression: Literal["gzip", "zstd", "none"] = spec(
        "Compression of rotated files.", default="zstd"
    )
    retention: Retention = spec("When rotated files go.", factory=Retention)
    max_open_files: int = spec("Open files.", default=4096, minimum=16, maximum=1_000_000)
    commit: Commit = spec("How often lines become durable.", factory=Commit)
    takeover_after_ns: int = spec(
        "Silence after which another collector takes over.", default=10 * SECOND_NS, unit="duration"
    )
    snapshot_every_ns: int = spec(
        "How often source positions are stored.", default=5 * SECOND_NS, unit="duration"
    )
    update_strategy: UpdateStrategy = spec("How pods are replaced.", factory=UpdateStrategy)
    drain_timeout_seconds: int = spec("Time to hand partitions over.", default=300, minimum=0)
    persistence: Persistence | None = spec("The volume of each collector.", default=None)
    pod_disruption_budget: DisruptionBudget = spec(
        "How many may be away.", factory=DisruptionBudget
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatterns:
    """Plain log files."""

    include: tuple[str, ...] = spec(
        "Globs of absolute paths; ** crosses folders.",
        factory=tuple,
        max_items=256,
        pattern=ABSOLUTE,
        max_length=1024,
    )
    exclude: tuple[str, ...] = spec(
        "Globs that are left out.", factory=tuple, max_items=256, max_length=1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Pods by namespace, label and container."""

    namespaces: tuple[str, ...] = spec("Namespaces.", factory=tuple, max_items=256, max_length=63)
    labels: dict[str, str] = spec("Labels that a pod must have.", factory=dict)
    container_names: tuple[str, ...] = spec(
        "Containers.", factory=tuple, max_items=64, max_length=63
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Pods to take or to leave out; the first entry that fits decides."""

    select: PodSelector | None = spec("Take these.", default=None)
    exclude: PodSelector | None = spec("Leave these out.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFiles:
    """How long deleted files are kept open to be read to their ends."""

    max_bytes: int = spec("Unread bytes of all of them.", default=256 * MIB, unit="bytes")
    max_age_ns: int = spec("Age of one.", default=3600 * SECOND_NS, unit="duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipperUpdate:
    """How shipper pods are replaced."""

    max_unavailable: Any = spec("A number or a percentage.", default=None, is_open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shippers(PodOptions):
    """The shippers: one a node, or beside a container."""

    enabled: bool = spec("Whether shippers run.", default=True)
    mode: Literal["daemonset", "sidecar"] = spec("Where they run.", default="daemonset")
    container_logs: bool = spec("Ship /var/log/pods.", default=True)
    host_files: tuple[FilePatterns, ...] = spec(
        "Plain files of the node.", factory=tuple, max_items=64
    )
    read_from: Literal["beginning", "end"] = spec(
        "Where a file seen for the first time is begun.", default="beginning"
    )
    match: tuple[Match, ...] = spec("Which pods.", factory=tuple, max_items=32)
    labels: tuple[str, ...] = spec(
        "Pod labels to carry.", factory=tuple, max_items=32, max_length=316
    )
    max_in_flight_bytes: int = spec(
        "Bytes on the way at once.", default=16 * MIB, unit="bytes", minimum=MIB
    )
    deleted_files: DeletedFiles = spec("Deleted files that are not read yet.", factory=DeletedFiles)
    max_open_files: int = spec("Open files.", default=1024, minimum=16, maximum=1_000_000)
    rescan_ns: int = spec(
        "How often folders are looked through.", default=2 * SECOND_NS, unit="duration"
    )
    update_strategy: ShipperUpdate = spec("How pods are replaced.", factory=ShipperUpdate)
    positions_host_path: str | None = spec(
        "Folder of the node for positions.", default=None, max_length=256, pattern=r"^/.+"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """Who may talk to whom."""

    enabled: bool = spec("Whether NetworkPolicies are made.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNats:
    """Credentials on one machine: files."""

    ca_file: str | None = spec("Certificate authority.", default=None)
    cert_file: str | None = spec("Client's certificate.", default=None)
    key_file: str | None = spec("Client's private key.", default=None)
    creds_file: str | None = spec("Credentials (JWT and seed).", default=None)
    nkey_file: str | None = spec("nkey seed.", default=None)
    token_file: str | None = spec("Token.", default=None)
    user_file: str | None = spec("User's name.", default=None)
    password_file: str | None = spec("Password.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShipper:
    """One shipper of this machine."""

    name: str = spec("Its name.", min_length=1, max_length=63, pattern=NAME)
    host: str | None = spec(
        "The host's name; by default the machine's.", default=None, max_length=253, pattern=SUBJECT
    )
    files: tuple[FilePatterns, ...] = spec("Plain files.", factory=tuple, max_items=64)
    pods: str | None = spec(
        "A folder like /var/log/pods.", default=None, max_length=1024, pattern=ABSOLUTE
    )
    hosts_below: str | None = spec(
        "Each folder below it is one more host: its pods/ and files/.",
        default=None,
        max_length=1024,
        pattern=ABSOLUTE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What `logpipeline up` needs beyond what Kubernetes does; the operator refuses it."""

    nats: LocalNats = spec("Credentials.", factory=LocalNats)
    shippers: tuple[LocalShipper, ...] = spec("The shippers.", factory=tuple, max_items=64)
