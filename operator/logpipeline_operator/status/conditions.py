"""The conditions of a pipeline, decided from its facts and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from logpipeline_operator.status.checks import warnings_of
from logpipeline_operator.status.facts import (
    Facts,
    Finding,
    JetStreamFacts,
    Mode,
    Part,
    Workload,
    first,
)
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import bounded, clean, counted, listed, numbered, sentence

Truth = Literal["True", "False", "Unknown"]

# These are certain although JetStream was not reached.
_CERTAIN = (Reason.JETSTREAM_DISABLED, Reason.LOCAL_IN_CLUSTER)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the status."""

    type: str
    status: Truth
    reason: Reason
    message: str


def conditions(facts: Facts, found: Sequence[Finding]) -> list[Condition]:
    """Return all conditions, sorted by type; *found* are all `checks.findings`."""
    ready = _ready(found)
    all_of_them = (
        ready,
        # kstatus, and so Flux, reads these: in progress by itself, or waiting for a person.
        replace(ready, type="Reconciling", status=_truth(_is_passing(ready))),
        replace(ready, type="Stalled", status=_truth(_is_lasting(ready))),
        _streams(facts, found),
        _collectors(facts, found),
        _shippers(facts, found),
        _table(facts, found),
        _durable(facts, found),
        _complete(facts, found),
        _paused(facts),
    )
    return sorted(all_of_them, key=lambda condition: condition.type)


def _is_passing(ready: Condition) -> bool:
    return ready.status != "True" and ready.reason.value.is_passing


def _is_lasting(ready: Condition) -> bool:
    return ready.status != "True" and not ready.reason.value.is_passing


def _truth(holds: bool) -> Truth:
    return "True" if holds else "False"


def _ready(found: Sequence[Finding]) -> Condition:
    cause = first(found)
    if cause is None:
        return _holds("Ready", Reason.WORKING)
    return _from("Ready", "False", cause)


def _streams(facts: Facts, found: Sequence[Finding]) -> Condition:
    kind = "StreamsReady"
    if facts.jetstream is None:
        cause = _first(found, Part.PIPELINE, Part.NATS)
        if cause is None:
            return _unseen(kind)
        return _from(kind, "False" if cause.reason in _CERTAIN else "Unknown", cause)
    cause = _first(found, Part.STREAMS)
    if cause is not None:
        return _from(kind, "False", cause)
    if facts.mode is not Mode.ACTIVE and not facts.jetstream.plan.is_empty:
        waiting = _first(found, Part.PIPELINE)
        return _from(kind, "False", waiting) if waiting else _unseen(kind)
    count = counted(len(facts.jetstream.partitions), "stream")
    warnings = [f"Warning: {sentence(text)}" for text in warnings_of(facts.jetstream.plan)]
    text = " ".join([f"Streams and consumers are as the resource asks ({count}).", *warnings])
    return _holds(kind, Reason.STREAMS_AS_WANTED, text)


def _collectors(facts: Facts, found: Sequence[Finding]) -> Condition:
    return _workload("CollectorsAvailable", facts.collectors, facts, found)


def _shippers(facts: Facts, found: Sequence[Finding]) -> Condition:
    kind = "ShippersAvailable"
    if facts.pipeline is not None and not facts.pipeline.spec.shippers.enabled:
        text = "spec.shippers.enabled is false."
        return _holds(kind, Reason.SHIPPERS_DISABLED, text)
    if facts.pipeline is not None and facts.pipeline.spec.shippers.mode == "sidecar":
        return Condition(kind, "Unknown", Reason.SIDECARS, Reason.SIDECARS.value.description)
    return _workload(kind, facts.shippers, facts, found)


def _table(facts: Facts, found: Sequence[Finding]) -> Condition:
    kind = "TableRunning"
    if facts.pipeline is not None and not facts.pipeline.spec.table.enabled:
        reason = Reason.TABLE_DISABLED
        return Condition(kind, "False", reason, reason.value.description)
    cause = _first(found, Part.TABLE)
    if cause is not None and facts.pipeline is not None:
        return _from(kind, "False", cause)
    if facts.table is not None:
        return _holds(kind, Reason.TABLE_RUNNING)
    cause = _first(found, Part.PIPELINE, Part.NATS)
    return _from(kind, "Unknown", cause) if cause is not None else _unseen(kind)


def _workload(
    kind: str, workload: Workload | None, facts: Facts, found: Sequence[Finding]
) -> Condition:
    part, good, noun = {
        "CollectorsAvailable": (Part.COLLECTORS, Reason.COLLECTORS_READY, "collector"),
        "ShippersAvailable": (Part.SHIPPERS, Reason.SHIPPERS_READY, "shipper"),
    }[kind]
    if workload is not None and workload.is_current and 0 < workload.wanted <= workload.ready:
        return _holds(kind, good, f"{workload.ready} of {counted(workload.wanted, noun)} ready.")
    cause = _first(found, part)
    if cause is None:
        cause = _first(found, Part.PIPELINE, Part.NATS)
    if cause is None:
        return _unseen(kind)
    is_known = workload is not None or (facts.pipeline is not None and cause.part is part)
    return _from(kind, "False" if is_known else "Unknown", cause)


def _durable(facts: Facts, found: Sequence[Finding]) -> Condition:
    kind = "Durable"
    if facts.pipeline is None:
        cause = _first(found, Part.PIPELINE)
        return _from(kind, "Unknown", cause) if cause else _unseen(kind)
    if facts.pipeline.spec.stream.storage == "memory":
        return _from(kind, "False", _finding(Reason.MEMORY_STORAGE))
    if facts.sync.is_always:
        return _holds(kind, Reason.SYNC_ALWAYS)
    if facts.sync.interval:
        what = (
            f"The server syncs to disk every {facts.sync.interval}: a power cut of all servers "
            "loses the lines acknowledged since"
        )
        return _from(kind, "False", _finding(Reason.SYNC_DELAYED, what))
    unknown = facts.sync.why_unknown or "the cause is unknown"
    why = f"It is not known how often the server syncs to disk: {unknown}"
    return _from(kind, "Unknown", _finding(Reason.SYNC_UNKNOWN, why))


def _complete(facts: Facts, found: Sequence[Finding]) -> Condition:
    kind = "Complete"
    if facts.jetstream is None:
        cause = _first(found, Part.PIPELINE, Part.NATS)
        return _from(kind, "Unknown", cause) if cause is not None else _unseen(kind)
    lost = [state for state in facts.jetstream.partitions if state.lost_bytes]
    if gone := _gone(facts.jetstream, is_whole=False):
        what = f"Collected lines were lost with a volume: {gone}"
        return _from(kind, "False", _finding(Reason.VOLUME_GONE, what))
    if not lost:
        if again := _gone(facts.jetstream, is_whole=True):
            what = f"A volume was empty, and its lines are read again: {again}"
            return _holds(kind, Reason.VOLUME_REREAD, sentence(what))
        return _holds(kind, Reason.NOTHING_LOST)
    size = sum(state.lost_bytes for state in lost)
    what = f"{size} bytes are lost, in partitions {numbered([each.partition for each in lost])}"
    return _from(kind, "False", _finding(Reason.BYTES_LOST, what))


def _gone(jetstream: JetStreamFacts, *, is_whole: bool) -> str:
    """Return the partitions and collectors whose folders were gone: with *is_whole* those that the
    streams still had completely, else the others.
    """
    gone = [
        (state.partition, each.member)
        for state in jetstream.partitions
        for each in state.gone
        if (each.again_from == each.after + 1) is is_whole
    ]
    if not gone:
        return ""
    members = listed(sorted({member for _, member in gone}))
    return f"partitions {numbered(sorted({number for number, _ in gone}))} of {members}"


def _paused(facts: Facts) -> Condition:
    reason = facts.mode.value
    meaning = reason.value
    status: Truth = "False" if facts.mode is Mode.ACTIVE else "True"
    return Condition("Paused", status, reason, f"{meaning.description} {meaning.do}".strip())


def _first(found: Sequence[Finding], *parts: Part) -> Finding | None:
    return first(finding for finding in found if finding.part in parts)


def _finding(reason: Reason, what: str = "") -> Finding:
    return Finding(reason=reason, part=Part.PIPELINE, what=what or reason.value.description)


def _from(kind: str, status: Truth, cause: Finding) -> Condition:
    return Condition(kind, status, cause.reason, cause.message)


def _holds(kind: str, reason: Reason, text: str = "") -> Condition:
    return Condition(kind, "True", reason, bounded(clean(text)) or reason.value.description)


def _unseen(kind: str) -> Condition:
    return Condition(kind, "Unknown", Reason.NOT_SEEN, Reason.NOT_SEEN.value.description)
