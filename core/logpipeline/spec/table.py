"""The part of the resource about tables: where they are written, how often, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.components import ClaimRetention, EmptyDir
from logpipeline.spec.declaration import spec
from logpipeline.spec.pods import PodOptions
from logpipeline.spec.streams import (
    DAY_NS,
    GIB,
    MINUTE_NS,
    SECOND_NS,
    SECRET_KEY,
    SECRET_NAME,
)

FieldType = Literal["string", "int", "float", "bool", "timestamp"]
TimeFormat = Literal[
    "auto",
    "iso8601",
    "rfc3164",
    "rfc5424",
    "klog",
    "common",
    "epochS",
    "epochMs",
    "epochUs",
    "epochNs",
]
# The API server bounds what a rule about all pairs of fields may cost.
RULES_MAX = 16
FIELDS_MAX = 24
# Small letters alone: DuckDB, Spark and Iceberg take `Status` and `status` for the same column.
COLUMN = r"^[a-z][a-z0-9_]{0,62}$"
# A name of the time-zone database, or a fixed distance from UTC.
ZONE = r"^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}|[+-][0-9]{2}:[0-9]{2})$"
PATTERN_CHARS_MAX = 1024
# The columns that every table has, those that parsing adds, and the folders of its files.
RESERVED = (
    *("stream", "incarnation", "seq", "idx", "ts", "event_ts", "partition", "cluster", "host"),
    *("namespace", "pod", "container", "fd", "level", "line", "piece", "source", "generation"),
    *("offset", "resent", "raw", "fields", "parsed", "dt", "hour"),
)

MIB = 2**20
HOUR_NS = 60 * MINUTE_NS
# A folder, which on one machine may begin with ${DATA}; or a bucket, and what its keys begin with.
# In URLs %, # and ? are no part of a path, and some readers take a backslash for a slash.
TABLE_PATH = (
    r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\x00-\x20\x7f%#?\\]*)?"
    r"|(/|\$\{DATA\}/|~/)[^\x00-\x1f\x7f%#?\\]*)$"
)
ENDPOINT = r"^https?://[^\x00-\x20\x7f/]+$"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSelector:
    """Whose lines: all that is given must fit, and of each list one name. `*` and `?` are
    wildcards, also for `/`.
    """

    namespaces: tuple[str, ...] = spec(
        "Namespaces of pods.", default=(), min_length=1, max_length=253, max_items=64
    )
    pods: tuple[str, ...] = spec(
        "Names of pods.", default=(), min_length=1, max_length=253, max_items=64
    )
    containers: tuple[str, ...] = spec(
        "Names of containers.", default=(), min_length=1, max_length=253, max_items=64
    )
    hosts: tuple[str, ...] = spec("Hosts.", default=(), min_length=1, max_length=253, max_items=64)
    sources: tuple[str, ...] = spec(
        "Sources, which of plain files are their paths.",
        default=(), min_length=1, max_length=1024, max_items=64,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LineField:
    """One value of a line that has a column of its own."""

    name: str = spec("Name of the column.", pattern=COLUMN, max_length=63, example="status")
    from_: str | None = spec(
        "Key in the line, by default the name; of JSON also a path: a.b is b in a, where there is "
        "no key a.b.",
        default=None, min_length=1, max_length=253, example="http.status",
    )  # fmt: skip
    type: FieldType = spec("Type of the column.", default="string")

    @property
    def key(self) -> str:
        """Return where the value stands in the line."""
        return self.from_ or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRule:
    """The format of lines of some sources."""

    select: LineSelector = spec("Whose lines; by default all.", factory=LineSelector)
    format: Literal["json", "logfmt", "regex"] = spec("What the lines are.")
    pattern: str | None = spec(
        "With regex: an expression of RE2 whose groups, each with a name of its own, are the "
        "values; it is searched for, so write ^ and $ where they are meant.",
        default=None, min_length=1, max_length=PATTERN_CHARS_MAX,
        example=r"^(?P<method>\S+) (?P<path>\S+) (?P<status>\d+)$",
    )  # fmt: skip
    fields: tuple[LineField, ...] = spec(
        "Values with a column of their own; all others stand together in the column `fields`.",
        default=(), max_items=FIELDS_MAX, unique_by="name",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRule:
    """One way to find the time of a line."""

    format: TimeFormat = spec(
        "How times are written; auto knows all, and finds the unit of a number by its size.",
        default="auto",
    )
    pattern: str | None = spec(
        "How they are written, as strptime has it, in place of format.",
        default=None, min_length=2, max_length=253, example="%d.%m.%Y %H:%M:%S",
    )  # fmt: skip
    field: str | None = spec(
        "The declared field that holds it; by default the first 256 bytes of the line.",
        default=None, pattern=COLUMN, max_length=63, example="time",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Secret:
    """Keys of S3 from a Secret."""

    name: str = spec("Name of the Secret.", max_length=253, pattern=SECRET_NAME, example="s3-keys")
    access_key_id: str = spec(
        "Key of the access key's id.",
        default="accessKeyId", max_length=253, pattern=SECRET_KEY, example="accessKeyId",
    )  # fmt: skip
    secret_access_key: str = spec(
        "Key of the secret access key.",
        default="secretAccessKey", max_length=253, pattern=SECRET_KEY, example="secretAccessKey",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """The address of S3, and our login; what is not given comes from the environment, as in AWS."""

    endpoint: str | None = spec(
        "URL of a server that speaks S3; by default AWS.",
        default=None, max_length=253, pattern=ENDPOINT, example="https://s3.example.net:9000",
    )  # fmt: skip
    region: str | None = spec("Region.", default=None, max_length=64)
    secret: S3Secret | None = spec("The Secret that holds the keys.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollups:
    """Counts per minute, host, namespace and level."""

    enabled: bool = spec("Whether they are kept.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRetention:
    """When hours of the table are deleted; without any limit, never."""

    max_age_ns: int | None = spec(
        "Age of lines; rollups stay.", default=None, unit="duration", minimum=HOUR_NS
    )
    max_bytes: int | None = spec(
        "Bytes of the files with lines.", default=None, unit="bytes", minimum=64 * MIB
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Puts the small files of an hour that is over together."""

    enabled: bool = spec("Whether that is done.", default=True)
    target_bytes: int = spec(
        "Size of a file.", default=256 * MIB, unit="bytes", minimum=MIB, maximum=4 * GIB
    )
    words: bool = spec(
        "Whether such files get filters of their words, by which `query --grep` leaves most of "
        "them unread.",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVolume:
    """The volume of a table that is a folder: a claim, or one of the other kinds."""

    size: int = spec("Size of the claim.", default=50 * GIB, unit="bytes", minimum=MIB)
    storage_class_name: str | None = spec(
        "Storage class of the claim.", default=None, max_length=253
    )
    retention_policy: ClaimRetention = spec("What becomes of the claim.", factory=ClaimRetention)
    existing_claim: str | None = spec(
        "Name of a claim that is there; executors in pods of their own need ReadWriteMany.",
        default=None, min_length=1, max_length=253,
    )  # fmt: skip
    empty_dir: EmptyDir | None = spec(
        "A folder that goes with the pod, and the table with it.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """Spark's executors, each a pod of its own."""

    instances: int = spec(
        "How many; 0: none, the driver does the work.", default=0, minimum=0, maximum=1000
    )
    cores: int = spec("Tasks that one runs at once.", default=1, minimum=1, maximum=64)
    memory: int = spec("Memory of one's JVM.", default=GIB, unit="bytes", minimum=512 * MIB)
    resources: dict[str, Any] | None = spec("Requests and limits of one's pod.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(PodOptions):
    """A table of all lines, kept by Spark."""

    enabled: bool | None = spec(
        "Whether there is one. By default one machine has one if it can run Spark, and a cluster "
        "if the class says so.",
        default=None,
        is_for_operator=True,
    )
    path: str | None = spec(
        "Folder or s3://bucket/prefix; by default a volume of its own, and on one machine "
        "${DATA}/table.",
        default=None, max_length=1024, pattern=TABLE_PATH, example="s3://logs/prod",
        is_for_operator=True,
    )  # fmt: skip
    format: Literal["delta", "iceberg"] = spec(
        "The lake format whose log says which files count; Iceberg needs a catalog.",
        default="delta",
    )
    catalog: dict[str, str] = spec(
        "Iceberg: properties of the catalog, as pyiceberg has them, and `table`.", factory=dict
    )
    runner: Literal["embedded", "native", "sparkApplication"] = spec(
        "Where Spark runs: in one pod; a driver with executors in pods; or as a SparkApplication "
        "of an operator for Spark that is there.",
        default="embedded",
    )
    trigger: Literal["continuous", "schedule"] = spec(
        "All the time, or now and then what has come since.", default="continuous"
    )
    every_ns: int | None = spec(
        "Time between two batches (10s), or between two runs on schedule (1h).",
        default=None, unit="duration", minimum=SECOND_NS, maximum=DAY_NS, is_for_operator=True,
    )  # fmt: skip
    max_bytes_per_batch: int = spec(
        "Stored bytes that a batch takes at most.",
        default=256 * MIB, unit="bytes", minimum=MIB, maximum=64 * GIB,
    )  # fmt: skip
    parse: tuple[ParseRule, ...] = spec(
        "How lines are read, so that what they say has columns; of rules that fit a line the first "
        "is used. By default no line is.",
        default=(), max_items=RULES_MAX,
    )  # fmt: skip
    time: tuple[TimeRule, ...] = spec(
        "Where `event_ts` comes from: the first that finds a time that can be believed. By "
        "default, and where none does, it is the container runtime's.",
        default=(), max_items=RULES_MAX,
    )  # fmt: skip
    zone: str = spec(
        "Zone of times that name none.",
        default="UTC", max_length=64, pattern=ZONE, example="Europe/Berlin",
    )  # fmt: skip
    rollups: Rollups = spec("Counts per minute.", factory=Rollups)
    retention: TableRetention = spec("When hours are deleted.", factory=TableRetention)
    compaction: Compaction = spec("How files are put together.", factory=Compaction)
    driver_memory: int = spec(
        "Memory of the driver's JVM.", default=GIB, unit="bytes", minimum=512 * MIB
    )
    executors: Executors = spec("Executors in pods (native, sparkApplication).", factory=Executors)
    persistence: TableVolume | None = spec(
        "The volume of a table that is a folder; without it a claim of 50Gi.",
        default=None,
        is_for_operator=True,
    )
    s3: S3 = spec("The address of S3, and the login.", factory=S3, is_for_operator=True)

    @property
    def interval_ns(self) -> int:
        """Return the time between two batches, or between two runs on schedule."""
        default = 10 * SECOND_NS if self.trigger == "continuous" else HOUR_NS
        return default if self.every_ns is None else self.every_ns
