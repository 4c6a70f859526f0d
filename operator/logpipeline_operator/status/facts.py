"""The facts of one reconciliation of a pipeline, as plain values: the only input of its status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from logpipeline.backlog import ShipperBacklog
from logpipeline.lag import PartitionState
from logpipeline.plan.apply import Report
from logpipeline.plan.model import Plan
from logpipeline.plan.trim import Trimmed
from logpipeline.records import Assignment
from logpipeline.spec import LogPipeline, SpecError
from logpipeline.tables.state import TableState
from logpipeline_operator.callout.refusals import Refusals
from logpipeline_operator.children.model import Component
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import bounded, clean, listed, sentence


class Part(Enum):
    """The part of a pipeline that a finding is about."""

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
    """A problem: a sentence *what*, and *advice*, by default that of the *reason*."""

    reason: Reason
    part: Part
    what: str
    advice: str | None = None

    @property
    def message(self) -> str:
        """The message of a condition: the problem and the advice."""
        advice = self.reason.value.do if self.advice is None else self.advice
        return bounded(clean(f"{sentence(self.what.strip())} {advice}"))


def first(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that is nearest to the cause, in whatever order they are given."""
    return min(
        findings, key=lambda each: (each.reason.rank, each.part.value, each.what), default=None
    )


def part_of(name: str) -> Part:
    """Return the part that the child *name* (``StatefulSet prod-collector``) belongs to."""
    if "RoleBinding logpipeline-shipper:" in name:
        return Part.SHIPPERS
    if name.startswith("SparkApplication "):
        return Part.TABLE
    endings = (part for ending, part in _PART_BY_ENDING.items() if name.endswith(ending))
    return next(endings, Part.PIPELINE)


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Return *findings*, with one for all that say the same of different objects.

    Their texts begin with the object's name: ``prod-collector-0: …``.
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
    """Whether changes are applied, and if not, which setting prevents it."""

    ACTIVE = Reason.ACTIVE
    PAUSED = Reason.PAUSED
    UNMANAGED = Reason.UNMANAGED
    READ_ONLY = Reason.READ_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The pods of a StatefulSet or DaemonSet: *wanted*, and how many exist, are ready and have the
    newest revision. *is_current*: its controller has seen the operator's last change.
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
    """The interval at which the servers sync to disk, as nats-server writes it; if it is not known
    it is empty, and *why_unknown* has the cause.
    """

    interval: str = ""
    why_unknown: str = ""

    @property
    def is_always(self) -> bool:
        """Whether each message is on disk before it is acknowledged."""
        return self.interval == "always"


NOT_LOOKED_AT = Sync(why_unknown="it was not looked at yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamFacts:
    """The state of a pipeline's JetStream after the plan was applied; *report* is None if nothing
    may be changed.

    *commit_ages_s* has the seconds since the last commit, for partitions that had one.
    """

    plan: Plan
    report: Report | None = None
    assignment: Assignment | None = None
    partitions: tuple[PartitionState, ...] = ()
    commit_ages_s: Mapping[int, float] = field(default_factory=dict)
    # The answers of shippers that are behind, or have a problem.
    behind: tuple[ShipperBacklog, ...] = ()
    # Of each callout beside a managed server.
    refused_logins: tuple[Refusals, ...] = ()
    # Messages that were deleted before readers beside the collectors got to them, of all together.
    readers_missed: int = 0
    # None if the pipeline has no table.
    table: TableState | None = None


@dataclass(slots=True, kw_only=True)
class News:
    """Facts that only an event reports: the next reconciliation finds no trace of them."""

    # Children that others had changed, and that were corrected.
    drifted: list[str] = field(default_factory=list)
    # The certificates of the managed server that were made, and why.
    renewed: str = ""
    # Logins to the managed server that were refused since the last report of them.
    refused_logins: str = ""


@dataclass(slots=True, kw_only=True)
class Facts:
    """One reconciliation. What was not reached is None or empty.

    *findings* are problems met on the way, made by `errors` and `pods`; *pending* names the changes
    to Kubernetes that wait because the *mode* does not allow them.
    """

    generation: int
    version: str
    name: str
    # The operator that made the observation, as `checkedBy` names it.
    operator: str
    pipeline: LogPipeline | None = None
    mistakes: SpecError | None = None
    # Whether the resource has spec.local, which is for one machine.
    has_local: bool = False
    mode: Mode = Mode.ACTIVE
    findings: list[Finding] = field(default_factory=list)
    jetstream: JetStreamFacts | None = None
    # The streams that were above the level at which they are trimmed.
    trimmed: tuple[Trimmed, ...] = ()
    collectors: Workload | None = None
    shippers: Workload | None = None
    table: Workload | None = None
    # Of the managed server; None if the pipeline uses the user's own server.
    nats: Workload | None = None
    sync: Sync = NOT_LOOKED_AT
    news: News = field(default_factory=News)
    pending: list[str] = field(default_factory=list)

    @property
    def may_write(self) -> bool:
        """Whether anything but the status may be changed."""
        return self.mode is Mode.ACTIVE
