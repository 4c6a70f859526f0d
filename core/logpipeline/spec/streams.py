"""The part of the resource about NATS: servers, credentials, streams, batches, consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from logpipeline.spec.declaration import spec
from logpipeline.spec.partition_list import PARTITIONS
from logpipeline.spec.pods import PodOptions

MS_NS = 10**6
SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
DAY_NS = 86_400 * SECOND_NS
GIB = 2**30
NAME = r"^[A-Za-z0-9_-]+$"
SUBJECT = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
# A root that begins with an underscore could meet the roots of our own messages, or an inbox.
ROOT = r"^[A-Za-z0-9-][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$"
TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)
# As Kubernetes has them; a key becomes the name of a file.
SECRET_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
SECRET_KEY = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
DeliverPolicy = Literal["all", "new", "last", "lastPerSubject", "byStartTime", "byStartSequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A Secret in the pipeline's namespace."""

    name: str = spec(
        "Name of the Secret.", max_length=253, pattern=SECRET_NAME, example="nats-credentials"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS from a Secret."""

    secret: SecretRef = spec("The Secret that holds the files.")
    ca: str | None = spec(
        "Key of the certificate authority.",
        default=None,
        max_length=253,
        pattern=SECRET_KEY,
        example="ca.crt",
    )
    cert: str | None = spec(
        "Key of the client's certificate; without it the client shows none.",
        default=None, max_length=253, pattern=SECRET_KEY, example="tls.crt",
    )  # fmt: skip
    key: str | None = spec(
        "Key of the client's private key.",
        default=None,
        max_length=253,
        pattern=SECRET_KEY,
        example="tls.key",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Creds:
    """A credentials file (JWT and seed) from a Secret."""

    secret: SecretRef = spec("The Secret that holds the file.")
    file: str = spec(
        "Key of the credentials file.", max_length=253, pattern=SECRET_KEY, example="nats.creds"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Nkey:
    """An nkey seed from a Secret."""

    secret: SecretRef = spec("The Secret that holds the seed.")
    seed: str = spec("Key of the seed.", max_length=253, pattern=SECRET_KEY, example="seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token from a Secret."""

    secret: SecretRef = spec("The Secret that holds the token.")
    token: str = spec("Key of the token.", max_length=253, pattern=SECRET_KEY, example="token")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """User and password from a Secret."""

    secret: SecretRef = spec("The Secret that holds both.")
    user: str = spec(
        "Key of the user's name.", max_length=253, pattern=SECRET_KEY, example="username"
    )
    password: str = spec(
        "Key of the password.", max_length=253, pattern=SECRET_KEY, example="password"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedNats(PodOptions):
    """The nats-server that is run for the pipeline where no servers are given."""

    replicas: Literal[1, 3] = spec("How many servers.", default=1)
    storage: int = spec(
        "Disk for the streams, per server.", default=10 * GIB, unit="bytes", minimum=2**20
    )
    storage_class_name: str | None = spec(
        "Storage class of the claims.", default=None, max_length=253
    )
    sync_interval: str = spec(
        "How often the server syncs to disk: always, or a time span; with a span, a power cut "
        "loses acknowledged lines.",
        default="always", max_length=16, pattern=r"^(always|[0-9]+(ms|s|m))$",
        example="always or 10s",
    )  # fmt: skip
    tls: Literal["Required", "Optional", "Disabled"] | None = spec(
        "Whether clients and servers speak TLS. Optional also lets clients in that speak plain "
        "text. By default Required where the server is made with it, and Disabled for a server "
        "that began without.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """Where JetStream is."""

    servers: tuple[str, ...] = spec(
        "URLs of your servers; without any, a server is run for the pipeline.",
        factory=tuple, max_items=32, max_length=253, unique_by="",
        pattern=r"^(nats|tls|ws|wss)://[^\s,]+$", example="nats://nats.example.net:4222",
    )  # fmt: skip
    managed: ManagedNats = spec("The server that is run for you.", factory=ManagedNats)
    js_domain: str = spec(
        "JetStream domain.", default="", max_length=64, pattern=r"^[^.*>\s]*$", example="hub"
    )
    tls_first: bool = spec("Do the TLS handshake before anything else.", default=False)
    tls: Tls | None = spec("TLS files.", default=None)
    creds: Creds | None = spec("Authenticate by a credentials file.", default=None)
    nkey: Nkey | None = spec("Authenticate by an nkey.", default=None)
    token: Token | None = spec("Authenticate by a token.", default=None)
    user: User | None = spec("Authenticate by user and password.", default=None)
    monitoring_url: str | None = spec(
        "The servers' monitoring page, which shows the sync interval.",
        default=None, max_length=253, pattern=r"^https?://[^\s]+$",
        example="http://nats.example.net:8222",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The servers of a NATS cluster that hold the streams."""

    cluster: str = spec("Name of the NATS cluster.", default="", max_length=253)
    tags: tuple[str, ...] = spec(
        "Tags that a server must have.", factory=tuple, max_items=16, max_length=253
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOverride:
    """Other limits for some partitions."""

    partitions: str = spec(
        "Which partitions: 0-3,7.", max_length=256, pattern=PARTITIONS, example="0-3,7"
    )
    max_bytes: int | None = spec("Limit of the stream's bytes.", default=None, unit="bytes")
    max_age_ns: int | None = spec("Limit of a message's age.", default=None, unit="duration")
    max_msgs: int | None = spec("Limit of the stream's messages.", default=None, minimum=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The streams that hold the lines."""

    layout: Literal["partitions", "single"] = spec(
        "A stream for each partition, or one for all of them, which collectors read by its "
        "subjects: easier to look at, and slower (see docs/own-nats.md).",
        default="partitions",
    )
    name: str | None = spec(
        "Base of the streams' names, <name>_0 and so on; with layout single, the stream's name. By "
        "default derived from namespace and name.",
        default=None, max_length=64, pattern=NAME, example="LOGS",
    )  # fmt: skip
    storage: Literal["file", "memory"] = spec("Where messages are kept.", default="file")
    retention: Literal["limits", "interest", "workqueue"] = spec(
        "When messages go; collectors need limits.", default="limits"
    )
    discard: Literal["old", "new"] = spec(
        "What a full stream does: drop the oldest message, or refuse new ones.", default="new"
    )
    replicas: int = spec("Copies of each message.", default=1, minimum=1, maximum=5)
    max_age_ns: int = spec("Limit of a message's age; 0s: none.", default=DAY_NS, unit="duration")
    duplicate_window_ns: int = spec(
        "How long the server remembers message ids.",
        default=2 * MINUTE_NS, unit="duration", minimum=100 * MS_NS,
    )  # fmt: skip
    max_bytes: int | None = spec(
        "Limit of each stream's bytes; by default its share of the storage.",
        default=None, unit="bytes",
    )  # fmt: skip
    max_msgs: int = spec("Limit of each stream's messages; -1: none.", default=-1, minimum=-1)
    max_msg_size: int = spec(
        "Limit of a message's bytes; -1: none.", default=-1, minimum=-1, maximum=2**31 - 1
    )
    max_msgs_per_subject: int = spec(
        "Limit of each host's messages; 0: none.", default=0, minimum=0
    )
    max_consumers: int = spec(
        "Limit of each stream's consumers; -1: 1000, or fewer where the account allows fewer.",
        default=-1, minimum=-1,
    )  # fmt: skip
    compression: Literal["s2", "none"] = spec(
        "Compression by the server; batches come compressed already.", default="none"
    )
    foreign_partitions: int = spec(
        "Shippers of another kind may count other partitions than `spec.partitions`. What they "
        "send to partitions beyond it, up to this number, is stored as well, in the stream of that "
        "partition modulo `spec.partitions`.",
        default=32, minimum=0, maximum=1024,
    )  # fmt: skip
    deny_delete: bool = spec("Refuse to delete single messages.", default=False)
    deny_purge: bool = spec("Refuse to purge.", default=False)
    allow_direct: bool = spec("Allow direct reads, which collectors need.", default=True)
    placement: Placement | None = spec("Which servers hold the streams.", default=None)
    metadata: dict[str, str] = spec("Metadata of the streams.", factory=dict)
    trim: Literal["collected", "never"] = spec(
        "Purge what is collected by all and in the table when a stream fills up, or never.",
        default="collected",
    )
    trim_above: int = spec(
        "Fill level in percent above which is trimmed.", default=50, minimum=1, maximum=99
    )
    skip_tables_above: int = spec(
        "Fill level in percent above which trimming waits for no table, which then misses what it "
        "has not read; 100: it always waits, and shippers with it.",
        default=80, minimum=1, maximum=100,
    )  # fmt: skip
    adopt: bool = spec("Take over streams of these names that are not ours.", default=False)
    external: bool = spec(
        "Use the streams of another LogPipeline, here or in another cluster, which makes, changes "
        "and trims them: for a further group of collectors, or for shippers elsewhere.",
        default=False,
    )
    overrides: tuple[StreamOverride, ...] = spec(
        "Other limits for some partitions.", factory=tuple, max_items=64
    )


# How sure a shipper makes of each line, from one line at a time to not at all.
Acknowledge = Literal["each", "batch", "none"]
RedactionPreset = Literal[
    "secret", "bearer", "url-password", "jwt", "aws-key", "card", "iban", "email", "ipv4"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The limits by which lines are put together into messages."""

    max_bytes: int = spec(
        "Bytes of lines in a message.",
        default=512 * 1024, unit="bytes", minimum=1024, maximum=8 * 2**20,
    )  # fmt: skip
    max_line_bytes: int | None = spec(
        "Longer lines are sent in pieces; by default just under the server's max_payload.",
        default=None, unit="bytes", minimum=1024, maximum=8 * 2**20,
    )  # fmt: skip
    linger_ns: int = spec(
        "How long a small batch waits for more lines.",
        default=20 * MS_NS, unit="duration", maximum=MINUTE_NS,
    )  # fmt: skip
    compression: Literal["zstd", "none"] = spec("Compression of a batch.", default="zstd")
    ack: Acknowledge = spec(
        "Wait for each batch, for each line (audit), or for nothing (lines can be lost); entries "
        "of match and files, and pods, may say otherwise.",
        default="batch",
    )
    message: Literal["batch", "line"] = spec(
        "What a message is: a batch with headers, or, for readers that know none, one line as "
        "fshipper sends it.",
        default="batch",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Texts that are masked before lines leave their machine. Each byte becomes one of the mask,
    so that lines keep their lengths.
    """

    presets: tuple[RedactionPreset, ...] = spec(
        "What is masked: values of fields such as password and token (secret), credentials in "
        "headers (bearer) and URLs (url-password), keys (jwt, aws-key), numbers of cards and "
        "accounts (card, iban), and addresses (email, ipv4).",
        factory=tuple, max_items=16, unique_by="",
    )  # fmt: skip
    expressions: tuple[str, ...] = spec(
        "Further expressions (RE2). Their groups are masked, or all that they find, if they have "
        "none.",
        factory=tuple, max_items=32, min_length=1, max_length=512, example=r"session=([0-9a-f]+)",
    )  # fmt: skip
    mask: str = spec(
        "What stands in the place of each byte; 0 keeps numbers in JSON numbers.",
        default="*", pattern=r"^[!-~]$", max_length=1,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTemplate:
    """A consumer that is made once for each partition, in JetStream's terms."""

    name: str = spec("Name of the consumer.", max_length=64, pattern=NAME, example="audit")
    type: Literal["pull", "push"] = spec(
        "Whether readers ask for messages, or get them pushed.", default="pull"
    )
    durable: bool = spec("Keep it when it is not read.", default=True)
    partitions: str | None = spec(
        "Only these partitions: 0-3,7.",
        default=None, max_length=256, pattern=PARTITIONS, example="0-3,7",
    )  # fmt: skip
    deliver_policy: DeliverPolicy = spec("Where it begins.", default="all")
    opt_start_time: str | None = spec(
        "The time to begin at (RFC 3339).",
        default=None, max_length=40, pattern=TIME, is_time=True, example="2026-01-31T12:00:00Z",
    )  # fmt: skip
    opt_start_seq: int | None = spec("The sequence to begin at.", default=None, minimum=1)
    ack_policy: Literal["none", "all", "explicit"] = spec(
        "What must be acknowledged.", default="explicit"
    )
    ack_wait_ns: int | None = spec(
        "How long an acknowledgement may take.", default=None, unit="duration"
    )
    max_deliver: int = spec(
        "How often a message is delivered; -1: for ever.", default=-1, minimum=-1
    )
    max_ack_pending: int | None = spec(
        "Most messages that wait for an acknowledgement; -1: no limit.", default=None, minimum=-1
    )
    max_waiting: int | None = spec("Most pull requests that wait.", default=None, minimum=1)
    backoff_ns: tuple[int, ...] = spec(
        "Times between deliveries.", factory=tuple, unit="duration", max_items=16
    )
    replay_policy: Literal["instant", "original"] = spec(
        "Deliver at once, or at the pace of the writing.", default="instant"
    )
    headers_only: bool = spec("Deliver headers without payload.", default=False)
    deliver_subject: str | None = spec(
        "Push: where to; p<N> is appended. Default out.<subject>.",
        default=None, max_length=200, pattern=ROOT, example="out.logs",
    )  # fmt: skip
    deliver_group: str | None = spec(
        "Push: queue group.", default=None, max_length=64, pattern=NAME, example="readers"
    )
    inactive_threshold_ns: int | None = spec(
        "Delete it after this time without readers.", default=None, unit="duration"
    )
    mem_storage: bool = spec("Keep its state in memory.", default=False)
    replicas: int | None = spec(
        "Copies of its state; by default as the stream.", default=None, minimum=0, maximum=5
    )
    max_request_batch: int | None = spec("Most messages in a pull.", default=None, minimum=1)
    max_request_expires_ns: int | None = spec(
        "Longest pull.", default=None, unit="duration", minimum=MS_NS
    )
    max_request_max_bytes: int | None = spec(
        "Most bytes in a pull.", default=None, unit="bytes", minimum=1
    )
    flow_control: bool = spec("Push: flow control.", default=False)
    idle_heartbeat_ns: int | None = spec(
        "Push: heartbeat when idle.", default=None, unit="duration", minimum=100 * MS_NS
    )
    rate_limit_bps: int | None = spec("Push: bits a second.", default=None, minimum=1)
    filter_host: str | None = spec(
        "Only this host's messages.",
        default=None, max_length=253, pattern=SUBJECT, example="web1.example.net",
    )  # fmt: skip
    metadata: dict[str, str] = spec("Metadata of the consumers.", factory=dict)
