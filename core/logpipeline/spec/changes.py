"""Changes of an existing resource that are refused, as CEL for the API server and as Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logpipeline.spec.components import VOLUME_KINDS, Persistence
from logpipeline.spec.mistakes import Mistake
from logpipeline.spec.model import LogPipelineSpec


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """A rule between the old and the new resource; evaluated at the root."""

    id: str
    path: str
    cel: str
    message: str
    holds: Callable[[LogPipelineSpec, LogPipelineSpec], bool]


def _same_cel(path: str) -> str:
    """Return the CEL that an optional field is unchanged, also where it was not set."""
    new, old = f"self.spec.{path}", f"oldSelf.spec.{path}"
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


def _stays_on(name: str) -> str:
    return f"!oldSelf.spec.stream.{name} || self.spec.stream.{name}"


def _kept_cel(owner: str, kind: str) -> str:
    volume = f"{owner}.spec.collectors.persistence"
    return f"(has({volume}) && has({volume}.{kind}))"


def _runs_server_cel(owner: str) -> str:
    """Return the CEL that a server is run for the pipeline."""
    servers = f"{owner}.spec.nats.servers"
    return f"(!has({servers}) || {servers}.size() == 0)"


def _domain_cel(owner: str) -> str:
    return f"(has({owner}.spec.nats.jsDomain) ? {owner}.spec.nats.jsDomain : '')"


def _volume_kind(spec: LogPipelineSpec) -> list[bool]:
    volume = spec.collectors.persistence or Persistence()
    return [
        part is not None for part in (volume.existing_claim, volume.host_path, volume.empty_dir)
    ]


CHANGE_RULES = (
    ChangeRule(
        "subject-stays", "subject", _same_cel("subject"),
        "cannot change, be added or removed; create a new LogPipeline",
        lambda old, new: old.subject == new.subject,
    ),
    ChangeRule(
        "partitions-stay", "partitions",
        "self.spec.partitions == oldSelf.spec.partitions",
        "cannot change: hosts would move between streams; create a new LogPipeline",
        lambda old, new: old.partitions == new.partitions,
    ),
    ChangeRule(
        "stream-name-stays", "stream.name", _same_cel("stream.name"),
        "cannot change, be added or removed; create a new LogPipeline",
        lambda old, new: old.stream.name == new.stream.name,
    ),
    ChangeRule(
        "layout-stays", "stream.layout",
        "self.spec.stream.layout == oldSelf.spec.stream.layout",
        "cannot change: the lines of one stream do not move into several; create a new LogPipeline",
        lambda old, new: old.stream.layout == new.stream.layout,
    ),
    ChangeRule(
        "foreign-stays", "stream.foreignPartitions",
        "self.spec.stream.layout != 'single' || "
        "self.spec.stream.foreignPartitions == oldSelf.spec.stream.foreignPartitions",
        "cannot change with layout single: collectors would be past what is stored by then; create "
        "a new LogPipeline",
        lambda old, new: (
            new.stream.layout != "single"
            or old.stream.foreign_partitions == new.stream.foreign_partitions
        ),
    ),
    ChangeRule(
        "storage-stays", "stream.storage",
        "self.spec.stream.storage == oldSelf.spec.stream.storage",
        "cannot change (JetStream refuses it); create a new LogPipeline",
        lambda old, new: old.stream.storage == new.stream.storage,
    ),
    ChangeRule(
        "workqueue-stays", "stream.retention",
        "self.spec.stream.retention == oldSelf.spec.stream.retention || "
        "(self.spec.stream.retention != 'workqueue' && "
        "oldSelf.spec.stream.retention != 'workqueue')",
        "cannot change to or from workqueue (JetStream refuses it)",
        lambda old, new: (
            old.stream.retention == new.stream.retention
            or "workqueue" not in (old.stream.retention, new.stream.retention)
        ),
    ),
    ChangeRule(
        "deny-delete-stays", "stream.denyDelete", _stays_on("denyDelete"),
        "cannot be turned off (JetStream refuses it)",
        lambda old, new: new.stream.deny_delete or not old.stream.deny_delete,
    ),
    ChangeRule(
        "deny-purge-stays", "stream.denyPurge", _stays_on("denyPurge"),
        "cannot be turned off (JetStream refuses it)",
        lambda old, new: new.stream.deny_purge or not old.stream.deny_purge,
    ),
    ChangeRule(
        "group-stays", "collectors.group",
        "self.spec.collectors.group == oldSelf.spec.collectors.group",
        "cannot change: the new group would write all stored lines into the same files again, and "
        "full streams would wait for the former group for ever; create a new LogPipeline",
        lambda old, new: old.collectors.group == new.collectors.group,
    ),
    ChangeRule(
        "persistence-stays", "collectors.persistence",
        " && ".join(
            f"{_kept_cel('self', kind)} == {_kept_cel('oldSelf', kind)}" for kind in VOLUME_KINDS
        ),
        "cannot change to or from existingClaim, hostPath or emptyDir: what is collected would "
        "stay behind; create a new LogPipeline",
        lambda old, new: _volume_kind(old) == _volume_kind(new),
    ),
    ChangeRule(
        "managed-replicas-stay", "nats.managed.replicas",
        "self.spec.nats.managed.replicas == oldSelf.spec.nats.managed.replicas",
        "cannot change: the streams of one server do not move into a cluster; create a new "
        "LogPipeline",
        lambda old, new: old.nats.managed.replicas == new.nats.managed.replicas,
    ),
    ChangeRule(
        "servers-stay-yours", "nats.servers",
        f"{_runs_server_cel('self')} == {_runs_server_cel('oldSelf')}",
        "cannot be added or all be removed: the streams of a server that is run for the pipeline "
        "do not move to or from yours; create a new LogPipeline",
        lambda old, new: bool(old.nats.servers) == bool(new.nats.servers),
    ),
    # Under a domain such a server has no accounts, and streams of an account are found only in it.
    ChangeRule(
        "managed-domain-stays", "nats.jsDomain",
        f"!{_runs_server_cel('self')} || !{_runs_server_cel('oldSelf')} || "
        f"{_domain_cel('self')} == {_domain_cel('oldSelf')}",
        "cannot change where a server is run for the pipeline: its streams would not be found; "
        "create a new LogPipeline",
        lambda old, new: (
            bool(old.nats.servers or new.nats.servers)
            or old.nats.js_domain == new.nats.js_domain
        ),
    ),
)  # fmt: skip


def check_change(old: LogPipelineSpec, new: LogPipelineSpec) -> Iterator[Mistake]:
    """Yield the changes from *old* to *new* that are refused."""
    for rule in CHANGE_RULES:
        if not rule.holds(old, new):
            yield Mistake(f"spec.{rule.path}", rule.message)
