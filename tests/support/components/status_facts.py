"""Looks at a pipeline that works, and at any others: what the tests of the status begin from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from logpipeline.lag import PartitionState, StreamLag
from logpipeline.plan.apply import Outcome, Report, Result
from logpipeline.plan.model import FieldChange, Kind, Plan, Problem, Step
from logpipeline.plan.trim import Trimmed
from logpipeline.records import StreamPosition, assign
from logpipeline.spec import LogPipeline, Mistake, SpecError, parse
from logpipeline.tables.progress import TableProgress
from logpipeline.tables.state import TableState, TableStream
from logpipeline_operator.status import (
    Facts,
    Finding,
    JetStreamFacts,
    Mode,
    News,
    Part,
    Reason,
    Sync,
    Workload,
)

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
PARTITIONS = 4
# In every text that comes from elsewhere; a status that shows it told a secret.
PASSWORD = "hunter2-s3cr3t"


def pipeline(**spec: Any) -> LogPipeline:
    """The pipeline team/prod with four partitions and two collectors."""
    given = {"partitions": PARTITIONS, "collectors": {"replicas": 2}, **spec}
    metadata = {"name": "prod", "namespace": "team", "uid": "u-1", "generation": 3}
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": metadata,
            "spec": given,
        }
    )


def partition(number: int, **changes: Any) -> PartitionState:
    """A partition that is owned by whom it is assigned to, and has nothing to do."""
    owner = f"prod-collector-{number // 2}"
    state = PartitionState(
        partition=number,
        stream=f"LP_team_prod_{number}",
        is_there=True,
        assigned=owner,
        owner=owner,
        epoch=1,
    )
    return replace(state, **changes)


def jetstream(*partitions: PartitionState, **changes: Any) -> JetStreamFacts:
    """A JetStream that has what is wanted; *partitions* stand in for those of their numbers."""
    given = {state.partition: state for state in partitions}
    states = tuple(given.get(number, partition(number)) for number in range(PARTITIONS))
    facts = JetStreamFacts(
        plan=Plan(pipeline="team/prod"),
        report=Report(),
        assignment=assign(
            ["prod-collector-0", "prod-collector-1"], partitions=PARTITIONS, generation=1
        ),
        partitions=states,
    )
    return replace(facts, **changes)


def working(**changes: Any) -> Facts:
    """A look at a pipeline that works, with *changes*."""
    facts = Facts(
        generation=3,
        version="0.1.0",
        name="prod",
        operator="logging/logpipeline-operator",
        pipeline=pipeline(),
        jetstream=jetstream(),
        collectors=Workload(wanted=2, present=2, ready=2, updated=2),
        shippers=Workload(wanted=3, present=3, ready=3, updated=3),
        nats=Workload(wanted=1, present=1, ready=1, updated=1),
        sync=Sync(interval="always"),
    )
    return replace(facts, **changes)


def progress(**changes: Any) -> TableProgress:
    """A table of seven lines, to which two of the four streams came."""
    told = TableProgress(
        path="/table",
        commit=3,
        rows=7,
        at_ns=int(NOW.timestamp()) * 10**9,
        streams={
            f"LP_team_prod_{number}": StreamPosition("2026-05-04T00:00:00Z", 5, 1)
            for number in (0, 1)
        },
    )
    return replace(told, **changes)


def table_state(**changes: Any) -> TableState:
    """A table with one stream, of which it has all, with *changes* to the table or the stream."""
    own = {name: changes.pop(name) for name in list(changes) if name in TableStream.__slots__}
    stream = TableStream(
        **{"stream": "LP_team_prod_0", "lag": StreamLag(messages=0, bytes=0, age_s=0.0), **own}
    )
    return TableState(
        **{"name": "team/prod", "progress": progress(), "streams": (stream,), **changes}
    )


def with_table(state: TableState | None = None, **changes: Any) -> Facts:
    """A look at a pipeline that works and keeps a table, with *changes*."""
    state = state or table_state()
    given: dict[str, Any] = {
        "pipeline": pipeline(table={"enabled": True}),
        "jetstream": jetstream(table=state),
        "table": Workload(wanted=1, present=1, ready=1, updated=1),
        **changes,
    }
    return working(**given)


def condition(status: dict[str, Any], kind: str = "Ready") -> tuple[str, str, str]:
    """Status, reason and message of a condition of *status*."""
    found = next(each for each in status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


_texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            f"cannot connect to nats://bob:{PASSWORD}@nats.example.net:4222",
            f"bad password={PASSWORD}, try again",
            "\x1b[31mred\x1b[0m \u202etxt",
            "long " * 1000,
            "é" * 3000,
        ]
    ),
)
_findings = st.builds(
    Finding,
    reason=st.sampled_from([r for r in Reason if r.rank < Reason.WORKING.rank]),
    part=st.sampled_from(Part),
    what=_texts,
)
_trimmed = st.builds(
    Trimmed,
    stream=st.sampled_from(["LP_team_prod_0", "LP_team_prod_1"]),
    fill=st.floats(0.5, 1),
    below=st.integers(0, 1),
    messages=st.just(0),
    held_by=_texts,
)
_counts = st.integers(0, 4)
_workloads = st.none() | st.builds(
    Workload,
    wanted=_counts,
    present=_counts,
    ready=_counts,
    updated=_counts,
    is_current=st.booleans(),
)


@st.composite
def _outcomes(draw: st.DrawFn) -> Outcome:
    kind = draw(st.sampled_from(Kind))
    change = FieldChange(field="max_age", found=2, wanted=1, kind=kind)
    step = Step(stream="LP_team_prod_0", kind=kind, changes=(change,), note=draw(_texts))
    held = draw(st.sampled_from([(), (change,)]))
    result = draw(st.sampled_from(Result))
    return Outcome(step=step, result=result, detail=draw(_texts), held=held)


@st.composite
def _partitions(draw: st.DrawFn, number: int) -> PartitionState:
    name = st.sampled_from(["", "prod-collector-0", "prod-collector-1"])
    if not draw(st.booleans()):
        return partition(number)
    return partition(
        number,
        is_there=draw(st.booleans()),
        owner=draw(name),
        assigned=draw(name),
        released=draw(st.booleans()),
        lag_messages=draw(st.integers(0, 100)),
        lag_bytes=draw(st.integers(0, 2**50)),
        lag_s=draw(st.floats(0, 1e7)),
    )


_numbers = st.integers(-1, 2**70)
_positions = st.builds(StreamPosition, created=_texts, sequence=_numbers, time_ns=_numbers)
_lags = st.builds(
    StreamLag,
    messages=st.integers(0, 100),
    bytes=st.integers(0, 2**50),
    age_s=st.floats(0, 1e7),
)
_table_streams = st.builds(
    TableStream,
    stream=st.sampled_from(["LP_team_prod_0", "LP_b"]),
    lag=_lags,
    is_overtaken_soon=st.sampled_from([False, False, True]),
    holds_back=st.sampled_from([False, False, True]),
    passed=st.sampled_from([True, True, False]),
)
_table_states = st.builds(
    TableState,
    progress=st.none()
    | st.builds(
        TableProgress,
        path=_texts,
        commit=_numbers,
        rows=_numbers,
        at_ns=_numbers,
        streams=st.dictionaries(st.sampled_from(["LP_team_prod_0", "LP_b"]), _positions),
        problem=st.just("") | _texts,
    ),
    name=st.just("team/prod"),
    streams=st.lists(_table_streams, max_size=2).map(tuple),
    missed_messages=st.integers(0, 2**70),
)


@st.composite
def _jetstreams(draw: st.DrawFn) -> JetStreamFacts:
    outcomes = tuple(draw(st.lists(_outcomes(), max_size=2)))
    names = st.sampled_from(["subjects-overlap", "new"])
    problem = st.builds(Problem, names, _texts, st.booleans())
    problems = tuple(draw(st.lists(problem, max_size=1)))
    report = Report(outcomes=outcomes, problems=problems)
    return jetstream(
        *(draw(_partitions(number)) for number in range(PARTITIONS)),
        plan=Plan(
            pipeline="team/prod", problems=problems, steps=tuple(each.step for each in outcomes)
        ),
        report=draw(st.sampled_from([report, report, None])),
        assignment=draw(st.sampled_from([None, jetstream().assignment])),
        commit_ages_s=draw(st.dictionaries(st.integers(0, 3), st.floats(0, 1e6), max_size=4)),
        table=draw(st.none() | _table_states),
    )


_PIPELINES = [
    pipeline(),
    pipeline(),
    pipeline(collectors={"replicas": 0}),
    pipeline(shippers={"mode": "sidecar"}),
    pipeline(shippers={"enabled": False}),
    pipeline(stream={"storage": "memory"}),
    pipeline(table={"enabled": True}),
    pipeline(table={"enabled": True}),
]


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Any look: each part of it as it works, or anyhow."""
    mistakes = SpecError((Mistake("spec.partitions", f"found {draw(_texts)!r}"),))
    given = {
        "pipeline": st.sampled_from([None, *_PIPELINES]),
        "mistakes": st.sampled_from([None, mistakes]),
        "has_local": st.booleans(),
        "mode": st.sampled_from(Mode),
        "findings": st.lists(_findings, max_size=3),
        "jetstream": st.none() | _jetstreams(),
        "collectors": _workloads,
        "shippers": _workloads,
        "table": _workloads,
        "nats": _workloads,
        "sync": st.builds(Sync, interval=st.sampled_from(["", "always", "2m"]), why_unknown=_texts),
        "news": st.builds(News, drifted=st.lists(_texts, max_size=9)),
        "pending": st.lists(_texts, max_size=9),
        "trimmed": st.lists(_trimmed, max_size=3).map(tuple),
        "generation": st.integers(1, 9),
    }
    # Of all wrong at once nobody learns much: a few things are, and the rest works.
    chosen = draw(st.sets(st.sampled_from(sorted(given)), max_size=4))
    return working(**{name: draw(given[name]) for name in sorted(chosen)})


def later(seconds: float) -> datetime:
    """The time *seconds* after `NOW`."""
    return NOW + timedelta(seconds=seconds)
