"""What may not change in a resource that exists, as CEL for the API server and as Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logpipeline.spec.mistakes import Mistake
from logpipeline.spec.model import LogPipelineSpec


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """What holds between a resource and what it is changed to; evaluated at the root."""

    id: str
    path: str
    cel: str
    message: str
    holds: Callable[[LogPipelineSpec, LogPipelineSpec], bool]


def _same_cel(path: str) -> str:
    """Return that an optional field is as it was, also where it was not set."""
    new, old = f"self.spec.{path}", f"oldSelf.spec.{path}"
    return f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"


def _stays_on(name: str) -> str:
    return f"!oldSelf.spec.stream.{name} || self.spec.stream.{name}"


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
        "persistence-stays", "collectors.persistence",
        "has(self.spec.collectors.persistence) == has(oldSelf.spec.collectors.persistence)",
        "cannot be added or removed (a StatefulSet's volumes are fixed)",
        lambda old, new: (
            (old.collectors.persistence is None) == (new.collectors.persistence is None)
        ),
    ),
)  # fmt: skip


def check_change(old: LogPipelineSpec, new: LogPipelineSpec) -> Iterator[Mistake]:
    """Yield what may not change from *old* to *new*."""
    for rule in CHANGE_RULES:
        if not rule.holds(old, new):
            yield Mistake(f"spec.{rule.path}", rule.message)
