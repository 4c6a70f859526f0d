"""The resource `LogPipeline` as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from logpipeline.partition import partition_of
from logpipeline.spec.components import Collectors, Local, NetworkPolicy, Shippers
from logpipeline.spec.declaration import Former, spec
from logpipeline.spec.streams import ROOT, Batch, ConsumerTemplate, Nats, Redaction, Stream
from logpipeline.spec.table import Table
from logpipeline.subjects import Names, Subjects, names_of

# A StatefulSet's name may have 52 characters, since its pods carry it in a label with a hash
# behind it (kubernetes#64023), and ours ends with "-collector".
NAME_CHARS_MAX = 42
# A name of Services, and part of pods' host names: a DNS label (RFC 1035), without a dot.
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
# As Kubernetes names what lies in no namespace.
CLASS_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
# A DNS label.
NAMESPACE_CHARS_MAX = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPipelineSpec:
    """The desired state."""

    management_state: Literal["Managed", "Unmanaged"] = spec(
        "Whether the operator acts on it, or leaves everything as it is.", default="Managed"
    )
    class_name: str | None = spec(
        "The LogPipelineClass, which says what this may choose; by default `default`.",
        default=None, min_length=1, max_length=253, pattern=CLASS_NAME, example="default",
    )  # fmt: skip
    cluster: str = spec("Name of the cluster, carried by every line.", default="", max_length=63)
    subject: str | None = spec(
        "Root of the subjects; by default derived from namespace and name.",
        default=None, max_length=128, pattern=ROOT, example="logs",
    )  # fmt: skip
    partitions: int = spec(
        "How many partitions; 0: one, named p0.", default=10, minimum=0, maximum=1024
    )
    repartition_policy: Literal["Forbid", "Drain"] = spec(
        "How the number of partitions may change; Drain is not there yet.", default="Forbid"
    )
    deletion_policy: Literal["Retain", "Delete"] = spec(
        "What becomes of the streams when the resource is deleted; of external streams, only of "
        "what they know of its group.",
        default="Retain",
    )
    nats: Nats = spec("Where JetStream is, and how to log in.", factory=Nats)
    stream: Stream = spec("The streams that hold the lines.", factory=Stream)
    batch: Batch = spec("How lines are put together into messages.", factory=Batch)
    redaction: Redaction = spec(
        "Texts that are masked before lines leave their machine.", factory=Redaction
    )
    consumers: tuple[ConsumerTemplate, ...] = spec(
        "Further consumers, each made once for each partition.",
        factory=tuple, max_items=64, unique_by="name",
    )  # fmt: skip
    collectors: Collectors = spec("The collectors, which write files.", factory=Collectors)
    shippers: Shippers = spec("The shippers, which read files.", factory=Shippers)
    table: Table = spec(
        "A table of all lines, kept by Spark.",
        factory=Table,
        former=Former(
            "archive", "is called table now: rename it, and leave what it holds as it is"
        ),
    )
    network_policy: NetworkPolicy = spec(
        "Restrictions of network traffic in the cluster.", factory=NetworkPolicy
    )
    local: Local = spec(
        "What one machine needs for `logpipeline up`; nothing of it is for Kubernetes.",
        factory=Local,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPipeline:
    """A resource: its identity and its spec."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    spec: LogPipelineSpec = field(default_factory=LogPipelineSpec)

    @property
    def names(self) -> Names:
        """The names of its streams, buckets and subjects."""
        return names_of(
            self.namespace,
            self.name,
            subject=self.spec.subject,
            stream=self.spec.stream.name,
            is_single=self.is_single_stream,
        )

    @property
    def is_single_stream(self) -> bool:
        """Whether one stream holds all partitions."""
        return self.spec.stream.layout == "single"

    @property
    def stream_count(self) -> int:
        """How many streams hold its lines; `names` has the name of each, from 0 on."""
        return 1 if self.is_single_stream else max(self.spec.partitions, 1)

    def stream_number_of(self, host: str) -> int:
        """Return the number of the stream that holds the lines of *host*."""
        return 0 if self.is_single_stream else partition_of(host, self.spec.partitions)

    def filter_of_host(self, host: str) -> str:
        """Return the filter of what the stream with the lines of *host* holds of it: one stream for
        all also has what a shipper put into another partition.

        Raises:
            BadHost: see `subjects.check_host`.
        """
        subjects = self.subjects
        return subjects.of_host_anywhere(host) if self.is_single_stream else subjects.of_host(host)

    @property
    def subjects(self) -> Subjects:
        """The subjects of its partitions."""
        return Subjects(self.names.subject, self.spec.partitions)

    @property
    def stream_subjects(self) -> Subjects:
        """The subjects for readers of whole streams, to whom a stream is a partition."""
        return Subjects(self.names.subject, 1) if self.is_single_stream else self.subjects
