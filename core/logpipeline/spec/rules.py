"""Rules between fields: one list, as CEL for the API server and as Python for one machine."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logpipeline.spec.mistakes import Mistake
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.streams import ConsumerTemplate

PATH_VARIABLES = frozenset(
    {"cluster", "host", "namespace", "pod", "container", "partition", "path"}
)


@dataclass(frozen=True, slots=True)
class SpecRule:
    """Holds within one resource; *path* is where it is told."""

    path: str
    cel: str
    message: str
    holds: Callable[[LogPipelineSpec], bool]


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """Holds between a resource and what it is changed to."""

    path: str
    cel: str
    message: str
    holds: Callable[[LogPipelineSpec, LogPipelineSpec], bool]


SPEC_RULES = (
    SpecRule(
        "spec.collectors.replicas",
        "self.collectors.replicas <= (self.partitions > 0 ? self.partitions : 1)",
        "must not exceed spec.partitions: surplus collectors would own no partition",
        lambda spec: spec.collectors.replicas <= max(spec.partitions, 1),
    ),
    SpecRule(
        "spec.nats",
        "[has(self.nats.creds), has(self.nats.nkey), has(self.nats.token), "
        "has(self.nats.user)].filter(x, x).size() <= 1",
        "set at most one of creds, nkey, token, user",
        lambda spec: (
            sum(
                x is not None
                for x in (spec.nats.creds, spec.nats.nkey, spec.nats.token, spec.nats.user)
            )
            <= 1
        ),
    ),
)

CHANGE_RULES = (
    ChangeRule(
        "spec.subject",
        "has(self.subject) == has(oldSelf.subject) && (!has(self.subject) || self.subject "
        "== oldSelf.subject)",
        "cannot change; create a new LogPipeline",
        lambda old, new: old.subject == new.subject,
    ),
    ChangeRule(
        "spec.partitions",
        "self.partitions == oldSelf.partitions",
        "cannot change: hosts would move between streams; create a new LogPipeline",
        lambda old, new: old.partitions == new.partitions,
    ),
    ChangeRule(
        "spec.stream.name",
        "has(self.stream.name) == has(oldSelf.stream.name) && (!has(self.stream.name) || "
        "self.stream.name == oldSelf.stream.name)",
        "cannot change, be added or removed",
        lambda old, new: old.stream.name == new.stream.name,
    ),
    ChangeRule(
        "spec.stream.storage",
        "self.stream.storage == oldSelf.stream.storage",
        "cannot change (JetStream refuses it)",
        lambda old, new: old.stream.storage == new.stream.storage,
    ),
    ChangeRule(
        "spec.stream.retention",
        "self.stream.retention == oldSelf.stream.retention || (self.stream.retention != "
        "'workqueue' && oldSelf.stream.retention != 'workqueue')",
        "cannot change to or from workqueue (JetStream refuses it)",
        lambda old, new: (
            old.stream.retention == new.stream.retention
            or "workqueue" not in (old.stream.retention, new.stream.retention)
        ),
    ),
    ChangeRule(
        "spec.stream",
        "!(oldSelf.stream.denyDelete && !self.stream.denyDelete) && "
        "!(oldSelf.stream.denyPurge && !self.stream.denyPurge)",
        "denyDelete and denyPurge cannot be turned off (JetStream refuses it)",
        lambda old, new: (
            not (old.stream.deny_delete and not new.stream.deny_delete)
            and not (old.stream.deny_purge and not new.stream.deny_purge)
        ),
    ),
    ChangeRule(
        "spec.collectors.persistence",
        "has(self.collectors.persistence) == has(oldSelf.collectors.persistence)",
        "cannot be added or removed (a StatefulSet's volumes cannot)",
        lambda old, new: (
            (old.collectors.persistence is None) == (new.collectors.persistence is None)
        ),
    ),
)


def check(spec: LogPipelineSpec) -> Iterator[Mistake]:
    """Yield what is wrong between the fields of *spec*."""
    for rule in SPEC_RULES:
        if not rule.holds(spec):
            yield Mistake(rule.path, rule.message)
    # Not in CEL: its durations know no days.
    if 0 < spec.stream.max_age_ns < spec.stream.duplicate_window_ns:
        yield Mistake("spec.stream.duplicateWindow", "must not exceed maxAge")
    yield from _check_template("spec.collectors.path", spec.collectors.path)
    yield from _check_template("spec.collectors.filePath", spec.collectors.file_path)
    names = [consumer.name for consumer in spec.consumers]
    for index, consumer in enumerate(spec.consumers):
        path = f"spec.consumers[{index}]"
        if names.count(consumer.name) > 1:
            yield Mistake(f"{path}.name", f"{consumer.name} is used more than once")
        yield from _check_consumer(path, consumer)
    shippers = [shipper.name for shipper in spec.local.shippers]
    for index, name in enumerate(shippers):
        if shippers.count(name) > 1:
            yield Mistake(f"spec.local.shippers[{index}].name", f"{name} is used more than once")
    for index, match in enumerate(spec.shippers.match):
        if (match.select is None) == (match.exclude is None):
            yield Mistake(f"spec.shippers.match[{index}]", "needs exactly one of select, exclude")


def check_change(old: LogPipelineSpec, new: LogPipelineSpec) -> Iterator[Mistake]:
    """Yield what may not change from *old* to *new*."""
    for rule in CHANGE_RULES:
        if not rule.holds(old, new):
            yield Mistake(rule.path, rule.message)


def _check_template(path: str, template: str) -> Iterator[Mistake]:
    plain = template.replace("${", "{")
    try:
        variables = {name for _, name, _, _ in string.Formatter().parse(plain) if name is not None}
    except ValueError as error:
        yield Mistake(path, f"{error}; write variables as {{host}}")
        return
    for name in sorted(variables - PATH_VARIABLES):
        yield Mistake(
            path, f"unknown variable {{{name}}}; known are {', '.join(sorted(PATH_VARIABLES))}"
        )
    if not variables & {"host", "partition"}:
        yield Mistake(path, "needs {host} or {partition}: two collectors would write the same file")
    if template.startswith("/") or ".." in re.split(r"[/\\]", template):
        yield Mistake(path, "must be a relative path without ..")


def _check_consumer(path: str, consumer: ConsumerTemplate) -> Iterator[Mistake]:
    if consumer.type == "pull":
        for name, value in (
            ("deliverSubject", consumer.deliver_subject),
            ("deliverGroup", consumer.deliver_group),
            ("flowControl", consumer.flow_control),
            ("idleHeartbeat", consumer.idle_heartbeat_ns),
            ("rateLimitBps", consumer.rate_limit_bps),
        ):
            if value:
                yield Mistake(f"{path}.{name}", "is for type push only")
    elif consumer.max_waiting is not None:
        yield Mistake(f"{path}.maxWaiting", "is for type pull only")
    if (consumer.opt_start_seq is not None) != (consumer.deliver_policy == "byStartSequence"):
        yield Mistake(
            f"{path}.optStartSeq", "goes with deliverPolicy byStartSequence, and only with it"
        )
    if (consumer.opt_start_time is not None) != (consumer.deliver_policy == "byStartTime"):
        yield Mistake(
            f"{path}.optStartTime", "goes with deliverPolicy byStartTime, and only with it"
        )
    if (
        consumer.backoff_ns
        and consumer.max_deliver != -1
        and consumer.max_deliver < len(consumer.backoff_ns)
    ):
        yield Mistake(f"{path}.backoff", "has more entries than maxDeliver allows deliveries")
