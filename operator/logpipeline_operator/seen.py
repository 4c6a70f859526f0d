"""What one look at a pipeline found out, step by step; whatever failed leaves its field empty."""

from __future__ import annotations

from dataclasses import dataclass, field

from logpipeline.spec import LogPipeline, SpecError
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.jetstream.look import JetStreamSeen
from logpipeline_operator.live import Failure
from logpipeline_operator.reach import Reach
from logpipeline_operator.status import Finding, Sync


@dataclass(slots=True)
class News:
    """What happened once and is told by an event alone: the next look finds no trace of it."""

    # Children that others had changed, and that were put right.
    drifted: list[str] = field(default_factory=list)
    # Which certificates of the managed server were made, and why.
    renewed: str = ""
    # Which logins were refused.
    refused_logins: str = ""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One look at the object *resource*."""

    resource: Manifest
    pipeline: LogPipeline | None = None
    mistakes: SpecError | None = None
    # The part for one machine, which means nothing here.
    has_local: bool = False
    is_paused: bool = False
    is_unmanaged: bool = False
    is_read_only: bool = False
    secret_problem: str = ""
    nats_error: Exception | None = None
    # A permission that the server denied on the way: to the one who waits it is mere silence.
    denied: str = ""
    jetstream: JetStreamSeen | None = None
    children: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    claims: list[Manifest] = field(default_factory=list)
    # Where the pipeline's Services lead.
    slices: list[Manifest] = field(default_factory=list)
    # Why controllers cannot make their pods, by the controller's title.
    refusals: dict[str, str] = field(default_factory=dict)
    # The namespaces whose pods shippers read, where labels of namespaces say it.
    reach: Reach = field(default_factory=Reach)
    sync: Sync = field(default_factory=lambda: Sync(why_unknown="it was not looked at yet"))
    # Collectors that there are to be now: more than wanted while some hand over.
    replicas: int | None = None
    # Children that there should be; empty where nothing could be decided.
    desired: tuple[Manifest, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    news: News = field(default_factory=News)
    # What would be written, where nothing may be.
    pending: list[str] = field(default_factory=list)

    @property
    def may_write(self) -> bool:
        """Whether this look may change anything but the status."""
        return not (self.is_paused or self.is_unmanaged or self.is_read_only)

    def child(self, kind: str, name: str) -> Manifest | None:
        """Return a live child."""
        return self.children.get((kind, name))
