"""The plan as data: it is printed, compared and tested, and it is all that applying ever reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from logpipeline.spec.api import GROUP

# A configuration in JetStream's own JSON.
Config = Mapping[str, Any]

# The owner of a stream or consumer. All our keys in metadata begin alike; the server's with _nats.
OWNER_KEY = f"{GROUP}/owner"
# How many partitions the one stream holds that holds all of them.
PARTITIONS_KEY = f"{GROUP}/partitions"
INSTALLATION_KEY = f"{GROUP}/installation"
# The group whose collector made a consumer for itself.
COLLECTOR_GROUP_KEY = f"{GROUP}/collector-group"


class Kind(StrEnum):
    """The effect of a change, or the obstacle to it."""

    CREATE = "create"
    IN_PLACE = "in place"
    DELETES_DATA = "deletes data"
    REFUSED = "refused by the server"
    DELETE = "delete"
    ADOPT_NEEDED = "adopt needed"


@dataclass(frozen=True, slots=True)
class Loss:
    """The data that a change would delete now: *messages* and *bytes* at most."""

    messages: int
    bytes: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field of a configuration that is not as wanted; both values with the server's
    defaults.
    """

    field: str
    found: Any
    wanted: Any
    kind: Kind
    note: str = ""
    loss: Loss | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stream or consumer that is not as wanted, and what is to be done about it.

    *found* is what the server had when the plan was made, None where it had nothing; *created*
    distinguishes that one from a later one of the same name.
    """

    stream: str
    consumer: str | None = None
    kind: Kind
    wanted: Config = field(default_factory=dict)
    found: Config | None = None
    created: str = ""
    changes: tuple[FieldChange, ...] = ()
    note: str = ""

    @property
    def asset(self) -> str:
        """Its name in messages: ``stream LOGS_0`` or ``consumer LOGS_0/audit``."""
        if self.consumer is None:
            return f"stream {self.stream}"
        return f"consumer {self.stream}/{self.consumer}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that applying would run into, and what to do about it.

    Where *is_blocking*, nothing is applied until it is solved; else it is a warning.
    """

    id: str
    message: str
    is_blocking: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that differs from what *pipeline* (``<namespace>/<name>``) wants; *unwanted* streams are
    ours, but of an older specification: they are kept, since they may hold lines.
    """

    pipeline: str
    problems: tuple[Problem, ...] = ()
    steps: tuple[Step, ...] = ()
    unwanted: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the server has what is wanted."""
        return not self.steps

    @property
    def blocking(self) -> tuple[Problem, ...]:
        """The problems that must be solved before anything is applied."""
        return tuple(problem for problem in self.problems if problem.is_blocking)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredStream:
    """A stream as the pipeline wants it, with the consumers that it wants on it by name.

    *readers* are the consumers that collectors add by themselves.
    """

    config: Config
    consumers: tuple[Config, ...] = ()
    readers: int = 0

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Everything that a pipeline wants of JetStream.

    *root* is the filter below which no stream of others may lie; *payload_bytes* is the largest
    message that shippers will send. *External* streams are another pipeline's, and stay as they
    are. The key *assignment* of the bucket *state_bucket* holds the former number of *partitions*.
    The last of *streams* holds all of them if it *is_single*.
    """

    pipeline: str
    root: str
    streams: tuple[DesiredStream, ...]
    payload_bytes: int
    adopt: bool = False
    is_external: bool = False
    partitions: int = 0
    is_single: bool = False
    state_bucket: str = ""
    assignment: str = ""

    @property
    def single(self) -> DesiredStream | None:
        """The one stream of all partitions, None if each has its own."""
        return self.streams[-1] if self.is_single else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of an account; -1 means none."""

    storage_bytes: int = -1
    memory_bytes: int = -1
    streams: int = -1
    consumers: int = -1
    storage_stream_bytes: int = -1
    memory_stream_bytes: int = -1
    is_max_bytes_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Limits and use of an account; *tiers* has them per number of replicas, where the server
    keeps them apart, and *limits* then stands for none of them.
    """

    limits: Limits
    streams: int = 0
    consumers: int = 0
    reserved_storage_bytes: int = 0
    reserved_memory_bytes: int = 0
    tiers: Mapping[int, Account] = field(default_factory=dict)

    def tier(self, replicas: int) -> Account:
        """Return limits and use for streams with *replicas*."""
        if not self.tiers:
            return self
        return self.tiers.get(replicas, NOTHING_ALLOWED)


# A tier that an account does not have takes no stream.
NOTHING_ALLOWED = Account(limits=Limits(storage_bytes=0, memory_bytes=0, streams=0, consumers=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConsumer:
    """A consumer as the server has it."""

    config: Config
    created: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStream:
    """A stream as the server has it; *now* is the server's time when it said so."""

    config: Config
    state: Mapping[str, Any]
    created: str
    now: str
    consumers: Mapping[str, FoundConsumer] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The state of the server: *streams* of the wanted names, and *neighbours*, other ones that lie
    below the pipeline's root.

    *servers* is the number of servers in the cluster, 1 without one, 0 where it is not known.
    *partitions* is how many were shared out among the pipeline's collectors, 0 if none ever were.
    *strays* are the messages of one stream of all partitions whose subjects are in none of these.
    """

    server_version: str
    max_payload_bytes: int
    servers: int
    account: Account
    streams: Mapping[str, FoundStream]
    neighbours: tuple[FoundStream, ...] = ()
    partitions: int = 0
    strays: int = 0


def owner_of(config: Config) -> str:
    """Return the pipeline that a stream or consumer belongs to, empty where it has no mark."""
    return str((config.get("metadata") or {}).get(OWNER_KEY, ""))


def is_ours(found: Config, wanted: Config) -> bool:
    """Return whether what was *found* belongs to the pipeline, and the installation of it, that
    wants *wanted*.
    """
    if not owner_of(wanted) or owner_of(found) != owner_of(wanted):
        return False
    theirs = str((found.get("metadata") or {}).get(INSTALLATION_KEY, ""))
    ours = str((wanted.get("metadata") or {}).get(INSTALLATION_KEY, ""))
    return not theirs or not ours or theirs == ours
