"""From what is wanted and what was seen to the plan: no clock, no connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from logpipeline.plan.checks import check
from logpipeline.plan.loss import reckon
from logpipeline.plan.matrix import Verdict, judge_consumer, judge_stream
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
from logpipeline.plan.normal import normal_consumer, normal_stream

Full = dict[str, Any]

# The worst first: a step is as bad as its worst change.
_BY_WEIGHT = (Kind.REFUSED, Kind.DELETES_DATA, Kind.IN_PLACE)


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
        note = f"belongs to LogPipeline {owner}" if owner else "made by somebody else"
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
    # Who plans without knowing the installation, as the command does, leaves the mark alone.
    if INSTALLATION_KEY in found:
        wanted.setdefault(INSTALLATION_KEY, found[INSTALLATION_KEY])
