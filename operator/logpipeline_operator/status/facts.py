"""What one look at a pipeline found out, as plain values: the only input of its status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from logpipeline.backlog import ShipperBacklog
from logpipeline.lag import PartitionState
from logpipeline.plan.apply import Report
from logpipeline.plan.model import Plan
from logpipeline.records import Assignment
from logpipeline.spec import LogPipeline, SpecError
from logpipeline.tables.state import TableState
from logpipeline_operator.children.model import Component
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import bounded, clean, listed, sentence


class Part(Enum):
    """Which part of a pipeline a finding is about."""

    PIPELINE = "pipeline"
    STREAMS = "streams"
    # The values of the components whose pods they are.
    NATS = Component.NATS.value
    COLLECTORS = Component.COLLECTOR.value
    SHIPPERS = Component.SHIPPER.value
    TABLE = Component.TABLE.value


_PART_BY_ENDING = {
    "-table": Part.TABLE,
    "-executor": Part.TABLE,
    "-collector": Part.COLLECTORS,
    "-shipper": Part.SHIPPERS,
    "-sidecar": Part.SHIPPERS,
    "-nats": Part.NATS,
    "-nats-headless": Part.NATS,
    "-nats-auth": Part.NATS,
    "-nats-ca": Part.NATS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong: *what* in a sentence, and *advice*, by default that of the *reason*."""

    reason: Reason
    part: Part
    what: str
    advice: str | None = None

    @property
    def message(self) -> str:
        """What a condition says: what is, and what to do."""
        advice = self.reason.value.do if self.advice is None else self.advice
        return bounded(clean(f"{sentence(self.what.strip())} {advice}"))


def first(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that is nearest to the cause, whatever order they come in."""
    return min(
        findings, key=lambda each: (each.reason.rank, each.part.value, each.what), default=None
    )


def part_of(name: str) -> Part:
    """Return which part the child *name* (``StatefulSet prod-collector``) belongs to."""
    if "RoleBinding logpipeline-shipper:" in name:
        return Part.SHIPPERS
    if name.startswith("SparkApplication "):
        return Part.TABLE
    endings = (part for ending, part in _PART_BY_ENDING.items() if name.endswith(ending))
    return next(endings, Part.PIPELINE)


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Return *findings* with those that say the same of many objects told as one.

    What they say begins with the object's name: ``prod-collector-0: …``.
    """
    groups: dict[tuple[Reason, Part, str, str | None], list[str]] = {}
    for each in findings:
        name, colon, text = each.what.partition(": ")
        key = (each.reason, each.part, text if colon else each.what, each.advice)
        groups.setdefault(key, []).append(name if colon else "")
    return [
        Finding(
            reason=reason,
            part=part,
            what=f"{listed(sorted(names))}: {text}" if any(names) else text,
            advice=advice,
        )
        for (reason, part, text, advice), names in groups.items()
    ]


class Mode(Enum):
    """Whether changes are carried out, and who said that they are not."""

    ACTIVE = Reason.ACTIVE
    PAUSED = Reason.PAUSED
    UNMANAGED = Reason.UNMANAGED
    READ_ONLY = Reason.READ_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A StatefulSet or DaemonSet: *wanted* pods, and how many there are, are ready and are of the
    newest revision; *is_current*: its controller has seen our last change.
    """

    wanted: int
    present: int = 0
    ready: int = 0
    updated: int = 0
    is_current: bool = True
    # The nodes whose pod is not ready, sorted.
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """How often the servers sync to disk: *interval* as nats-server writes it, empty where it is
    not known, and then *why_unknown*.
    """

    interval: str = ""
    why_unknown: str = ""

    @property
    def is_always(self) -> bool:
        """Whether each message is on disk before it is acknowledged."""
        return self.interval == "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamFacts:
    """What JetStream has; *report* is None where nothing was to be changed.

    *commit_ages_s* has, for partitions of which it is known, the seconds since the last commit.
    """

    plan: Plan
    report: Report | None = None
    assignment: Assignment | None = None
    partitions: tuple[PartitionState, ...] = ()
    commit_ages_s: Mapping[int, float] = field(default_factory=dict)
    # What shippers say that are behind, or have a problem.
    behind: tuple[ShipperBacklog, ...] = ()
    # None where there shall be no table.
    table: TableState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One look. What was not reached is None or empty.

    *findings* are what went wrong on the way, made by `errors` and `pods`; *pending* names what
    would be written to Kubernetes if the *mode* allowed it.
    """

    generation: int
    version: str
    name: str
    # Who looked, as `checkedBy` has it.
    operator: str
    pipeline: LogPipeline | None = None
    mistakes: SpecError | None = None
    has_local: bool = False
    mode: Mode = Mode.ACTIVE
    findings: tuple[Finding, ...] = ()
    jetstream: JetStreamFacts | None = None
    collectors: Workload | None = None
    shippers: Workload | None = None
    table: Workload | None = None
    # Of the managed server; None where the user's own is used.
    nats: Workload | None = None
    sync: Sync = Sync(why_unknown="it was not looked at yet")
    drifted: tuple[str, ...] = ()
    # Which certificates of the managed server were made, and why.
    renewed: str = ""
    # Which logins to the managed server were refused since that was last told.
    refused_logins: str = ""
    pending: tuple[str, ...] = ()
