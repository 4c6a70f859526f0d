"""The whole status of a pipeline, as it is written to the resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline.spec.crd import CHECKED_EVERY_S
from logpipeline.tables.progress import TableProgress
from logpipeline.tables.state import TableState
from logpipeline_operator.children.model import Component, selector
from logpipeline_operator.cluster.objects import TIME_FORMAT, time_text
from logpipeline_operator.status import previous_status
from logpipeline_operator.status.checks import behind_hosts, findings
from logpipeline_operator.status.conditions import Condition, conditions
from logpipeline_operator.status.facts import Facts, Workload
from logpipeline_operator.status.reasons import reason_of
from logpipeline_operator.status.text import (
    UNKNOWN,
    bounded,
    clean,
    fresh_from,
    lag_text,
    listed,
    size_text,
    words,
)

Status = dict[str, Any]

# Figures that change with every batch are written at most this often, and only while lines arrive.
FIGURES_EVERY_S = 60.0
# A longer list is not read; the progress in the state bucket has all of them.
STREAMS_MAX = previous_status.TABLE_STREAMS_MAX
PATH_BYTES_MAX = 512
# The largest values that the resource can hold; the bucket may have any value.
_NUMBER_MAX = 2**63 - 1
_TIME_MAX_S = 253_402_300_799

# The rest is counted: a longer list is not read.
NODES_SHOWN_MAX = 10
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def table_status(
    pipeline: LogPipeline, state: TableState | None, previous: Mapping[str, Any], now: datetime
) -> Status:
    """Return the status of the table of *pipeline*; *state* is None if it could not be read."""
    before = previous_status.table(previous)
    if state is None:
        return {**before, "lag": UNKNOWN}
    now_seen = {"lag": _table_lag(pipeline, state, str(before.get("lag", "")))}
    before.pop("missed", None)
    if state.missed_messages:
        now_seen["missed"] = _missed(state.missed_messages)
    if state.progress is None:
        return now_seen
    if state.is_unknown:
        return {**before, **now_seen}
    figures = {name: before[name] for name in previous_status.TABLE_FIGURES if name in before}
    if _is_due(figures, state.progress, now):
        figures = _figures(state.progress)
    return {**figures, **now_seen}


def _missed(messages: int) -> str:
    """Return about how many: a number that grew with each line would cause a write each time."""
    size = 10 ** (len(str(messages)) - 1)
    step = max(each for each in (1, 2, 5) if each * size <= messages)
    return f"at least {_within(step * size)} messages"


def _is_due(figures: Mapping[str, Any], progress: TableProgress, now: datetime) -> bool:
    """Return whether *progress* is new, and the *figures* written last are old enough."""
    if figures.keys() != set(previous_status.TABLE_FIGURES) or figures["path"] != _path(progress):
        return True
    if figures["commit"] == progress.commit:
        return False
    at = datetime.strptime(figures["committedAt"], TIME_FORMAT).replace(tzinfo=UTC)
    age_s = (now - at).total_seconds()
    # A time in the future comes from a clock that was set back.
    return not 0 <= age_s < FIGURES_EVERY_S


def _figures(progress: TableProgress) -> Status:
    at = datetime.fromtimestamp(min(max(0, progress.at_ns) // 10**9, _TIME_MAX_S), UTC)
    streams = sorted(progress.streams.items(), key=lambda item: (len(item[0]), item[0]))
    return {
        "path": _path(progress),
        "commit": _within(progress.commit),
        "rows": _within(progress.rows),
        "committedAt": time_text(at),
        "streams": [
            {"name": bounded(clean(name)), "sequence": _within(position.sequence)}
            for name, position in streams[:STREAMS_MAX]
        ],
    }


def _within(number: int) -> int:
    return min(max(0, number), _NUMBER_MAX)


def _path(progress: TableProgress) -> str:
    return bounded(clean(progress.path), bytes_max=PATH_BYTES_MAX)


def _table_lag(pipeline: LogPipeline, state: TableState, previous: str) -> str:
    fresh_s = fresh_from(pipeline.spec.table.interval_ns / 1e9)
    lags = [each.lag for each in state.streams]
    if state.is_unknown or not lags:
        return UNKNOWN
    age_s, size = max(lag.age_s for lag in lags), sum(lag.bytes for lag in lags)
    return words(age_s, size, previous, fresh_s=fresh_s)


def status_of(facts: Facts, previous: Mapping[str, Any] | None, now: datetime) -> Status:
    """Return the status for *facts*. The times of *previous*, the status that the resource has,
    stay if nothing changed.
    """
    previous = previous or {}
    status: Status = {
        "observedGeneration": facts.generation,
        "conditions": [
            _written(each, facts.generation, previous_status.condition(previous, each.type), now)
            for each in conditions(facts, findings(facts))
        ],
        **_identity(facts, previous),
        "lag": _lag(facts, previous),
        **_books(facts, previous),
        "collectors": _collectors(facts, previous),
        "shippers": _shippers(facts, previous),
        "version": facts.version,
        "checkedBy": facts.operator,
    }
    table = _table(facts, previous, now)
    if table is not None:
        status["table"] = table
    if facts.nats is not None:
        status["nats"] = {"ready": _ready(facts.nats)}
    if "claimedAt" in previous:
        # `Ownership` writes it. One that is not a time would never be equal to what is written.
        is_time = previous_status.time_of(previous["claimedAt"]) is not None
        status["claimedAt"] = previous["claimedAt"] if is_time else time_text(now)
    return {**status, "lastChecked": _checked(status, previous, now)}


def is_changed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Return whether the resource's status *old* differs from *new*, and must be written."""
    return dict(old or {}) != dict(new)


def is_settled(status: Mapping[str, Any]) -> bool:
    """Return whether there is nothing to wait for: no problem that ends by itself."""
    ready = previous_status.condition(status, "Ready")
    reason = reason_of(str(ready.get("reason", "")))
    return ready.get("status") == "True" or (reason is not None and not reason.value.is_passing)


def _checked(status: Status, previous: Mapping[str, Any], now: datetime) -> str:
    """Return the time of this check; the previous one if it is recent enough, and nothing else
    changed.
    """
    written = previous_status.time_of(previous.get("lastChecked"))
    if written is not None and 0 <= (now - written).total_seconds() < CHECKED_EVERY_S:
        stamp = str(previous["lastChecked"])
        if not is_changed(previous, {**status, "lastChecked": stamp}):
            return stamp
    return time_text(now)


def _written(
    condition: Condition, generation: int, old: Mapping[str, Any], now: datetime
) -> Status:
    return {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": generation,
        "lastTransitionTime": _since(condition, old, now),
        "reason": condition.reason.word,
        "message": condition.message,
    }


def _since(condition: Condition, old: Mapping[str, Any], now: datetime) -> str:
    written = time_text(now)
    before = str(old.get("lastTransitionTime", ""))
    if not _TIME.fullmatch(before):
        return written
    # With a clock that was set back, the newer state would begin before the older one.
    return before if old.get("status") == condition.status else max(before, written)


def _identity(facts: Facts, previous: Mapping[str, Any]) -> Status:
    if facts.pipeline is None:
        # What runs is still the last resource that could be read.
        return previous_status.identity(previous)
    names = facts.pipeline.names
    return {
        "partitions": max(facts.pipeline.spec.partitions, 1),
        "subject": names.subject,
        "streams": names.stream_base,
    }


def _lag(facts: Facts, previous: Mapping[str, Any]) -> str:
    if facts.jetstream is None:
        return UNKNOWN
    return lag_text(facts.jetstream.partitions, str(previous.get("lag", "")))


def _books(facts: Facts, previous: Mapping[str, Any]) -> Status:
    """Return the missing and the lost lines; the previous ones if JetStream was not reached."""
    if facts.jetstream is None:
        return {"missing": UNKNOWN, "lost": UNKNOWN, **previous_status.books(previous)}
    missing = sum(state.missing_bytes for state in facts.jetstream.partitions)
    lost = sum(state.lost_bytes for state in facts.jetstream.partitions)
    return {
        "missing": size_text(missing),
        "missingBytes": missing,
        "lost": size_text(lost),
        "lostBytes": lost,
    }


def _collectors(facts: Facts, previous: Mapping[str, Any]) -> Status:
    workload = facts.collectors or Workload(wanted=0)
    figures = {
        "replicas": workload.present,
        "readyReplicas": workload.ready,
        "ready": _ready(workload),
    }
    if facts.pipeline is None and facts.collectors is None:
        # Nothing was observed; an autoscaler would take a 0 as the number of pods.
        figures |= previous_status.figures(previous, "collectors", _kinds(figures))
    return {
        **figures,
        "selector": _selector(facts, previous),
        "assignments": _assignments(facts, previous),
    }


def _selector(facts: Facts, previous: Mapping[str, Any]) -> str:
    if facts.pipeline is None:
        return previous_status.selector(previous)
    labels = selector(facts.pipeline, Component.COLLECTOR)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _assignments(facts: Facts, previous: Mapping[str, Any]) -> list[dict[str, str]]:
    if facts.jetstream is None:
        return previous_status.assignments(previous)
    assignment = facts.jetstream.assignment
    members = assignment.members if assignment is not None else ()
    rows = [{"name": name, "partitions": str(owned)} for name, owned in members]
    return sorted(rows, key=lambda row: _natural(row["name"]))[: previous_status.ASSIGNMENTS_MAX]


def _natural(name: str) -> tuple[str, int, str]:
    # collector-10 comes after collector-9.
    start, _, number = name.rpartition("-")
    is_number = number.isascii() and number.isdigit()
    return (start, int(number), name) if is_number else (name, 0, name)


def _shippers(facts: Facts, previous: Mapping[str, Any]) -> Status:
    workload = facts.shippers or Workload(wanted=0)
    figures = {
        "desired": workload.wanted,
        "readyPods": workload.ready,
        "ready": _ready(workload),
        **_nodes(facts, workload, previous),
    }
    if facts.pipeline is None and facts.shippers is None:
        figures |= previous_status.figures(previous, "shippers", _kinds(figures))
    return figures


def _nodes(facts: Facts, workload: Workload, previous: Mapping[str, Any]) -> Status:
    if facts.jetstream is None:
        kinds = {"behind": int, "behindNodes": str}
        late: Status = previous_status.figures(previous, "shippers", kinds)
    else:
        hosts = behind_hosts(facts.jetstream)
        late = {"behind": len(hosts), "behindNodes": listed(hosts, shown_max=NODES_SHOWN_MAX)}
    not_ready = bounded(clean(listed(workload.nodes, shown_max=NODES_SHOWN_MAX)))
    late |= {"behindNodes": bounded(clean(late["behindNodes"]))} if "behindNodes" in late else {}
    return {"notReadyNodes": not_ready, **late}


def _table(facts: Facts, previous: Mapping[str, Any], now: datetime) -> Status | None:
    if facts.pipeline is None:
        return previous_status.table(previous) or None
    if not facts.pipeline.spec.table.enabled:
        return None
    state = facts.jetstream.table if facts.jetstream is not None else None
    return table_status(facts.pipeline, state, previous, now)


def _kinds(figures: Mapping[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in figures.items()}


def _ready(workload: Workload) -> str:
    return f"{workload.ready}/{workload.wanted}"
