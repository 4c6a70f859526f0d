"""From what is wanted and what was seen to the plan: no clock, no connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.plan.checks import check
from logpipeline.plan.model import (
    INSTALLATION_KEY,
    Config,
    Desired,
    DesiredStream,
    FieldChange,
    FoundConsumer,
    FoundStream,
    Kind,
    Loss,
    Observed,
    Plan,
    Step,
    is_ours,
    owner_of,
)
from logpipeline.plan.server_defaults import normal_consumer, normal_stream

NOTHING = Loss(0, 0, "nothing now")

Verdict = tuple[Kind, str]
Full = dict[str, Any]

IN_PLACE: Verdict = (Kind.IN_PLACE, "")

_ANEW = "remove the field's change, or give the pipeline another stream name"

_STREAM_FIXED = {
    "storage": "the storage of a stream is fixed",
    "mirror": "whether a stream is a mirror is fixed",
    "persist_mode": "the persist mode of a stream is fixed",
    "allow_msg_counter": "whether a stream counts is fixed",
}
# Once true, they stay true.
_STREAM_LATCHES = ("deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules")

_CONSUMER_FIXED = (
    "deliver_policy",
    "opt_start_seq",
    "opt_start_time",
    "ack_policy",
    "replay_policy",
    "max_waiting",
    "mem_storage",
    "idle_heartbeat",
    "flow_control",
)

# The worst first: a step is as bad as its worst change.
_BY_WEIGHT = (Kind.REFUSED, Kind.DELETES_DATA, Kind.IN_PLACE)


def reckon(field: str, wanted: Mapping[str, Any], stream: FoundStream) -> Loss:
    """Return the data of *stream* that the change of *field* to *wanted* (normalised) would delete
    now.
    """
    held = stream.state.get("messages", 0)
    if field == "max_msgs":
        return _oldest(stream, held - wanted[field])
    if field == "max_bytes":
        return _oldest(stream, _share(stream, stream.state.get("bytes", 0) - wanted[field]))
    if field == "discard":
        beyond_msgs = held - wanted["max_msgs"] if wanted["max_msgs"] > 0 else 0
        beyond_bytes = stream.state.get("bytes", 0) - wanted["max_bytes"]
        share = _share(stream, beyond_bytes) if wanted["max_bytes"] > 0 else 0
        return _oldest(stream, max(beyond_msgs, share))
    if field == "max_age":
        return _older(stream, wanted[field])
    if field == "max_msgs_per_subject":
        return _of_subjects(stream, wanted[field])
    return _loss(stream, held, "at most {messages} messages, those that no consumer waits for")


def _oldest(stream: FoundStream, messages: int) -> Loss:
    return _loss(stream, messages, "about the {messages} oldest of {held} messages")


def _older(stream: FoundStream, age_ns: int) -> Loss:
    if not stream.state.get("messages", 0):
        return NOTHING
    border = time_ns_of(stream.now) - age_ns
    first = time_ns_of(stream.state["first_ts"])
    last = time_ns_of(stream.state["last_ts"])
    if first >= border:
        return NOTHING
    # Messages are taken as spread evenly in time; only reading them all would be exact.
    share = min(1.0, (border - first) / max(last - first, 1))
    messages = max(1, round(stream.state["messages"] * share))
    day = datetime.fromtimestamp(border // 1_000_000_000, UTC)
    when = day.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _loss(stream, messages, f"about {{messages}} of {{held}} messages, from before {when}")


def _of_subjects(stream: FoundStream, kept: int) -> Loss:
    text = "at most {messages} of {held} messages, the oldest of each subject"
    return _loss(stream, stream.state.get("messages", 0) - kept, text)


def _share(stream: FoundStream, size: int) -> int:
    held = max(stream.state.get("bytes", 0), 1)
    messages = int(stream.state.get("messages", 0))
    # Rounded up: a part of a message is a whole one lost.
    return min(messages, -(-messages * size // held)) if size > 0 else 0


def _loss(stream: FoundStream, messages: int, text: str) -> Loss:
    held = stream.state.get("messages", 0)
    messages = min(messages, held)
    if messages <= 0:
        return NOTHING
    size = stream.state.get("bytes", 0) * messages // held
    return Loss(messages, size, text.format(messages=messages, held=held))


# Each rule was tried on nats-server 2.15.1, and the live tests try each of them again. The class of
# a change does not depend on how full the stream is, since it may fill before the plan is applied;
# what would be lost now is shown beside it.
def judge_stream(field: str, found: Full, wanted: Full, *, servers: int) -> Verdict:
    """Return what the server does when *field* of a stream goes from *found* to *wanted*, both
    normalised, in a cluster of *servers* (0: not known).
    """
    if found["sealed"]:
        return Kind.REFUSED, f"the stream is sealed for good; {_ANEW}"
    if field in _STREAM_FIXED:
        return Kind.REFUSED, f"{_STREAM_FIXED[field]}; {_ANEW}"
    if field in _STREAM_LATCHES and found[field]:
        return Kind.REFUSED, f"what was true stays true; {_ANEW}"
    if field in _RULES:
        return _RULES[field](found, wanted)
    if field == "num_replicas":
        return _replicas(wanted, servers)
    return IN_PLACE


def judge_consumer(field: str, found: Full, wanted: Full, *, servers: int) -> Verdict:
    """Return what the server does when *field* of a consumer goes from *found* to *wanted*."""
    if field in _CONSUMER_FIXED:
        return Kind.REFUSED, "fixed for this consumer: give the new one another name"
    if field == "deliver_subject" and bool(found[field]) != bool(wanted[field]):
        return Kind.REFUSED, "pull or push is fixed: give the new one another name"
    if field == "num_replicas":
        return _replicas(wanted, servers)
    if field in ("filter_subject", "filter_subjects"):
        return Kind.IN_PLACE, "older messages that a wider filter matches are not delivered"
    return IN_PLACE


def is_lowered(found: int, wanted: int) -> bool:
    """Return whether the limit *wanted* is below *found*; zero and less are no limit."""
    return wanted > 0 and (found <= 0 or wanted < found)


def _replicas(wanted: Full, servers: int) -> Verdict:
    count = wanted["num_replicas"]
    if servers and count > max(servers, 1):
        return Kind.REFUSED, f"{count} replicas need {count} servers, and there are {servers}"
    return IN_PLACE


def _retention(found: Full, wanted: Full) -> Verdict:
    if "workqueue" in (found["retention"], wanted["retention"]):
        return Kind.REFUSED, f"retention cannot go to or from workqueue; {_ANEW}"
    if wanted["retention"] == "interest":
        return Kind.DELETES_DATA, "what no consumer waits for is deleted at once"
    return IN_PLACE


def _discard(found: Full, wanted: Full) -> Verdict:
    if wanted["discard"] == "old":
        # A stream that discards new messages may hold more than its limits, if they were lowered.
        return Kind.DELETES_DATA, "a full stream then deletes its oldest messages for new ones"
    return Kind.IN_PLACE, "a full stream then refuses new messages"


def _max_size(field: str) -> Callable[[Full, Full], Verdict]:
    def judge(found: Full, wanted: Full) -> Verdict:
        if not is_lowered(found[field], wanted[field]):
            return IN_PLACE
        if wanted["discard"] == "new":
            return Kind.IN_PLACE, "nothing is deleted; new messages are refused until it is below"
        return Kind.DELETES_DATA, "the oldest messages beyond the limit are deleted at once"

    return judge


def _max_age(found: Full, wanted: Full) -> Verdict:
    if 0 < wanted["max_age"] < wanted["duplicate_window"]:
        return Kind.REFUSED, "max_age must not be below duplicate_window: change both"
    if is_lowered(found["max_age"], wanted["max_age"]):
        return Kind.DELETES_DATA, "older messages are deleted at once"
    return IN_PLACE


def _duplicate_window(found: Full, wanted: Full) -> Verdict:
    if 0 < wanted["max_age"] < wanted["duplicate_window"]:
        return Kind.REFUSED, "duplicate_window must not exceed max_age: change both"
    return IN_PLACE


def _per_subject(found: Full, wanted: Full) -> Verdict:
    if is_lowered(found["max_msgs_per_subject"], wanted["max_msgs_per_subject"]):
        return Kind.DELETES_DATA, "the oldest messages of each subject are deleted at once"
    return IN_PLACE


def _subjects(found: Full, wanted: Full) -> Verdict:
    if set(found["subjects"]) - set(wanted["subjects"]):
        return (
            Kind.IN_PLACE,
            "stored messages stay; the removed subjects have no stream",
        )
    return IN_PLACE


_RULES: dict[str, Callable[[Full, Full], Verdict]] = {
    "retention": _retention,
    "discard": _discard,
    "max_msgs": _max_size("max_msgs"),
    "max_bytes": _max_size("max_bytes"),
    "max_age": _max_age,
    "duplicate_window": _duplicate_window,
    "max_msgs_per_subject": _per_subject,
    "subjects": _subjects,
}


def make_plan(desired: Desired, observed: Observed) -> Plan:
    """Return every difference between what is *desired* and what was *observed*, classed."""
    ours = () if desired.is_external else desired.streams
    streams = [step for wanted in ours for step in _stream(wanted, desired, observed)]
    # Consumers are made on neither: a stranger's stream, nor one that its owner has yet to make.
    strangers = {step.stream for step in streams if step.kind is Kind.ADOPT_NEEDED}
    if desired.is_external:
        strangers = {wanted.name for wanted in desired.streams} - observed.streams.keys()
    consumers = [
        step
        for wanted in desired.streams
        if wanted.name not in strangers
        for step in _consumers(wanted, desired, observed)
    ]
    return Plan(
        pipeline=desired.pipeline,
        problems=check(desired, observed),
        # Streams first: a consumer needs its stream.
        steps=(*streams, *consumers),
        unwanted=tuple(
            sorted(
                stream.name
                for stream in observed.neighbours
                if owner_of(stream.config) == desired.pipeline
            )
        ),
    )


def _stream(wanted: DesiredStream, desired: Desired, observed: Observed) -> Iterator[Step]:
    found = observed.streams.get(wanted.name)
    step = Step(stream=wanted.name, kind=Kind.CREATE, wanted=wanted.config)
    if found is None:
        yield step
        return
    judge = partial(judge_stream, servers=observed.servers)
    changes = _changes(
        normal_stream(found.config), normal_stream(wanted.config), judge, stream=found
    )
    yield from _step(step, found, changes, desired)


def _consumers(wanted: DesiredStream, desired: Desired, observed: Observed) -> Iterator[Step]:
    stream = observed.streams.get(wanted.name)
    there = stream.consumers if stream is not None else {}
    for config in wanted.consumers:
        step = Step(stream=wanted.name, consumer=config["name"], kind=Kind.CREATE, wanted=config)
        found = there.get(config["name"])
        if found is None:
            yield step
            continue
        judge = partial(judge_consumer, servers=observed.servers)
        changes = _changes(normal_consumer(found.config), normal_consumer(config), judge)
        yield from _step(step, found, changes, desired)
    yield from _dropped(wanted, there)


def _dropped(wanted: DesiredStream, there: Any) -> Iterator[Step]:
    names = {config["name"] for config in wanted.consumers}
    for name, found in sorted(there.items()):
        if name not in names and is_ours(found.config, wanted.config):
            yield Step(
                stream=wanted.name,
                consumer=name,
                kind=Kind.DELETE,
                found=found.config,
                created=found.created,
                note="no longer wanted; its position is lost with it",
            )


def _step(
    step: Step,
    found: FoundStream | FoundConsumer,
    changes: tuple[FieldChange, ...],
    desired: Desired,
) -> Iterator[Step]:
    ours = is_ours(found.config, step.wanted)
    kind, note = Kind.ADOPT_NEEDED, ""
    if ours or desired.adopt:
        if not changes:
            return
        kind = min((change.kind for change in changes), key=_BY_WEIGHT.index)
    if not ours:
        owner = owner_of(found.config)
        note = f"belongs to LogPipeline {owner}" if owner else "not made by a LogPipeline"
    yield Step(
        stream=step.stream,
        consumer=step.consumer,
        kind=kind,
        wanted=step.wanted,
        found=found.config,
        created=found.created,
        changes=changes,
        note=note,
    )


def _changes(
    found: Full,
    wanted: Full,
    judge: Callable[[str, Full, Full], Verdict],
    *,
    stream: FoundStream | None = None,
) -> tuple[FieldChange, ...]:
    _keep_installation(found["metadata"], wanted["metadata"])
    return tuple(
        _change(field, found, wanted, judge, stream)
        for field in found
        if found[field] != wanted[field]
    )


def _change(
    field: str,
    found: Full,
    wanted: Full,
    judge: Callable[[str, Full, Full], Verdict],
    stream: FoundStream | None,
) -> FieldChange:
    kind, note = judge(field, found, wanted)
    loss: Loss | None = None
    if kind is Kind.DELETES_DATA and stream is not None:
        loss = reckon(field, wanted, stream)
    return FieldChange(
        field=field, found=found[field], wanted=wanted[field], kind=kind, note=note, loss=loss
    )


def _keep_installation(found: Config, wanted: Full) -> None:
    # A plan that does not know the installation, as the command's, leaves the mark alone.
    if INSTALLATION_KEY in found:
        wanted.setdefault(INSTALLATION_KEY, found[INSTALLATION_KEY])
