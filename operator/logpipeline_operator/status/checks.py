"""Readiness checks: the problems in the facts of a reconciliation. Without any, the pipeline is
ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logpipeline.backlog import BEHIND_S
from logpipeline.plan.apply import Outcome, Result
from logpipeline.plan.model import Kind, Plan
from logpipeline.plan.trim import WARN_FILL
from logpipeline.spec import LogPipeline
from logpipeline_operator.status.errors import of_refusal
from logpipeline_operator.status.facts import (
    Facts,
    Finding,
    JetStreamFacts,
    Mode,
    Part,
    Workload,
    grouped,
)
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import counted, listed, numbered

_PROBLEMS = {
    "server-too-old": Reason.NATS_TOO_OLD,
    "payload-too-small": Reason.PAYLOAD_TOO_SMALL,
    "too-few-servers": Reason.TOO_FEW_SERVERS,
    "subjects-overlap": Reason.SUBJECTS_OVERLAP,
    "too-many-streams": Reason.ACCOUNT_LIMIT,
    "too-little-storage": Reason.ACCOUNT_LIMIT,
    "stream-too-large": Reason.ACCOUNT_LIMIT,
    "max-bytes-required": Reason.ACCOUNT_LIMIT,
    "too-many-consumers": Reason.ACCOUNT_LIMIT,
    "stream-missing": Reason.STREAM_MISSING,
    "stream-differs": Reason.STREAM_DIFFERS,
    "group-taken": Reason.GROUP_TAKEN,
}

# Collectors commit several times a second. One that has lines to commit and has not committed for
# this long hangs.
COMMIT_AGE_MAX_S = 60.0
# The rest is counted: a longer list is not read.
MISTAKES_SHOWN_MAX = 5


def of_plan(
    jetstream: JetStreamFacts, name: str, generation: int, *, is_active: bool
) -> Iterator[Finding]:
    """Yield the problems of the pipeline *name* with JetStream. Unless the pipeline *is_active*,
    waiting steps are not among them.
    """
    for problem in jetstream.plan.blocking:
        reason = _PROBLEMS.get(problem.id, Reason.STREAM_REFUSED)
        # The text of the problem says what to do, so the reason's advice is left out.
        yield _finding(reason, problem.message, advice="")
    for outcome in jetstream.report.outcomes if jetstream.report else ():
        yield from _of_outcome(outcome, name, generation)
    if jetstream.report is None and is_active and not jetstream.plan.is_empty:
        yield _finding(Reason.STREAMS_PENDING, "streams are not as the resource asks yet")


def warnings_of(plan: Plan) -> list[str]:
    """Return the warnings of *plan*: problems that do not keep it from being applied."""
    return [problem.message for problem in plan.problems if not problem.is_blocking]


def steps_text(plan: Plan) -> list[str]:
    """Return the steps of *plan* as texts: ``create stream LOGS_0``."""
    words = {Kind.CREATE: "create", Kind.DELETE: "delete", Kind.ADOPT_NEEDED: "take over"}
    return [f"{words.get(step.kind, 'change')} {step.asset}" for step in plan.steps]


def _of_outcome(outcome: Outcome, name: str, generation: int) -> Iterator[Finding]:
    asset = outcome.step.asset
    if outcome.result is Result.REFUSED:
        text = outcome.detail
        yield _finding(of_refusal(text), f"{asset}: {text}", advice=None if text else "")
    elif outcome.result in (Result.UNKNOWN, Result.CHANGED_MEANWHILE, Result.NOT_TRIED):
        # The next reconciliation goes on; what stopped this one has a finding of its own.
        yield _finding(Reason.STREAMS_PENDING, f"{asset}: it is not as the resource asks yet")
    elif outcome.step.kind is Kind.ADOPT_NEEDED:
        yield _finding(
            Reason.FOREIGN_STREAM, f"{asset}: {outcome.step.note or 'it belongs to another owner'}"
        )
    else:
        yield from _of_held(outcome, name, generation)


def _of_held(outcome: Outcome, name: str, generation: int) -> Iterator[Finding]:
    step = outcome.step
    deleting = [change.field for change in outcome.held if change.kind is Kind.DELETES_DATA]
    refused = [change.field for change in outcome.held if change.kind is Kind.REFUSED]
    waiting = [change.field for change in outcome.held if change.kind is Kind.IN_PLACE]
    also = f"; {', '.join(waiting)} not changed either" if waiting else ""
    if step.kind is Kind.DELETE and outcome.result is Result.HELD_BACK:
        text = f"{step.asset}: deleting it would lose its position"
        yield _finding(Reason.DATA_LOSS_HELD, text, advice=_permission(name, generation))
    if deleting:
        # Without the number of lines: it changes with each line that arrives.
        text = f"{step.asset}: changing {', '.join(deleting)} would delete stored lines{also}"
        yield _finding(Reason.DATA_LOSS_HELD, text, advice=_permission(name, generation))
    if refused:
        text = f"{step.asset}: JetStream cannot change {', '.join(refused)}{also}"
        yield _finding(Reason.CHANGE_IMPOSSIBLE, text)


def _permission(name: str, generation: int) -> str:
    return (
        "Take the change back, or allow it: kubectl annotate --overwrite logpipeline "
        f"{name} logpipeline.dev/allow-data-loss={generation} "
        "(kubectl logpipeline plan shows how much would be deleted)."
    )


def _finding(reason: Reason, what: str, *, advice: str | None = None) -> Finding:
    return Finding(reason=reason, part=Part.STREAMS, what=what, advice=advice)


def findings(facts: Facts) -> list[Finding]:
    """Return everything that keeps the pipeline from being ready."""
    found = [*_of_spec(facts), *facts.findings]
    if facts.pipeline is not None:
        found += _of_mode(facts)
        found += _of_nats(facts)
        found += _of_jetstream(facts, facts.pipeline)
        found += _of_trimming(facts, facts.pipeline)
        found += _of_collectors(facts, facts.pipeline)
        found += _of_shippers(facts, facts.pipeline)
        found += _of_table(facts, facts.pipeline)
    if not found and (facts.pipeline is None or facts.jetstream is None):
        what = "the operator has not checked the pipeline yet"
        found.append(Finding(reason=Reason.NOT_SEEN, part=Part.PIPELINE, what=what))
    return grouped(found)


def _of_spec(facts: Facts) -> Iterator[Finding]:
    if facts.has_local:
        what = "spec.local is for `logpipeline up` on one machine; a cluster does not use it"
        yield Finding(reason=Reason.LOCAL_IN_CLUSTER, part=Part.PIPELINE, what=what)
    if facts.mistakes is not None:
        mistakes = [str(mistake) for mistake in facts.mistakes.mistakes]
        what = listed(mistakes, shown_max=MISTAKES_SHOWN_MAX)
        # Findings are grouped by the name before the first colon; this one has none.
        what = f"the resource has {counted(len(mistakes), 'mistake')}: {what}"
        yield Finding(reason=Reason.INVALID_SPEC, part=Part.PIPELINE, what=what)


def _of_mode(facts: Facts) -> Iterator[Finding]:
    if facts.mode is Mode.ACTIVE:
        return
    waiting = list(facts.pending)
    if facts.jetstream is not None:
        waiting += steps_text(facts.jetstream.plan)
    if waiting:
        what = f"these changes wait: {listed(waiting, shown_max=8)}"
        yield Finding(reason=facts.mode.value, part=Part.PIPELINE, what=what)


def _of_nats(facts: Facts) -> Iterator[Finding]:
    workload = facts.nats
    if workload is not None and (workload.ready < workload.wanted or not workload.is_current):
        servers = counted(workload.wanted, "nats-server")
        what = f"{workload.ready} of {servers} ready"
        yield Finding(reason=Reason.NATS_NOT_READY, part=Part.NATS, what=what)


def _of_jetstream(facts: Facts, pipeline: LogPipeline) -> Iterator[Finding]:
    jetstream = facts.jetstream
    if jetstream is None:
        return
    yield from _of_nodes(jetstream)
    yield from of_plan(jetstream, facts.name, facts.generation, is_active=facts.mode is Mode.ACTIVE)
    if pipeline.spec.collectors.replicas > 0:
        yield from _of_partitions(jetstream, pipeline)


def _of_trimming(facts: Facts, pipeline: LogPipeline) -> Iterator[Finding]:
    """Yield the streams that nothing may be purged from. Tables are reported with their state."""
    if pipeline.spec.stream.discard == "old":
        return  # Such a stream refuses nothing.
    for each in facts.trimmed:
        if each.is_stuck and not each.held_by.startswith("table "):
            level = f"more than {WARN_FILL * 100:.0f} % full"
            what = f"{each.stream}: {level}, and cannot be trimmed (held by: {each.held_by})"
            yield Finding(reason=Reason.TRIMMING_HELD_BACK, part=Part.PIPELINE, what=what)


def _of_partitions(jetstream: JetStreamFacts, pipeline: LogPipeline) -> Iterator[Finding]:
    seen = {state.partition: state for state in jetstream.partitions if state.is_there}
    wanted = range(max(pipeline.spec.partitions, 1))
    moving = [
        number
        for number in wanted
        if number in seen
        and (
            not seen[number].assigned
            or seen[number].owner != seen[number].assigned
            or seen[number].released
        )
    ]
    if missing := [number for number in wanted if number not in seen]:
        what = f"partitions without a stream: {numbered(missing)}"
        yield Finding(reason=Reason.STREAMS_PENDING, part=Part.STREAMS, what=what)
    if moving:
        what = f"partitions that no collector has taken yet: {numbered(moving)}"
        yield Finding(reason=Reason.PARTITIONS_MOVING, part=Part.PIPELINE, what=what)
    stalled = [number for number in wanted if _is_stalled(jetstream, number)]
    if stalled:
        owners = sorted({seen[number].owner for number in stalled} - {""})
        what = (
            f"no commit for more than {COMMIT_AGE_MAX_S:.0f} s, though lines wait, in partitions "
            f"{numbered(stalled)} (owned by {listed(owners) or 'no collector'})"
        )
        yield Finding(reason=Reason.PARTITIONS_STALLED, part=Part.PIPELINE, what=what)


def _is_stalled(jetstream: JetStreamFacts, partition: int) -> bool:
    state = next((s for s in jetstream.partitions if s.partition == partition and s.is_there), None)
    if state is None or state.lag_messages == 0 or state.lag_s <= COMMIT_AGE_MAX_S:
        return False
    # A collector that catches up commits all the time, though the oldest line is old.
    return jetstream.commit_ages_s.get(partition, state.lag_s) > COMMIT_AGE_MAX_S


def _of_collectors(facts: Facts, pipeline: LogPipeline) -> Iterator[Finding]:
    workload = facts.collectors
    if pipeline.spec.collectors.replicas == 0:
        what = "spec.collectors.replicas is 0: lines are stored, and not written to files"
        yield Finding(reason=Reason.COLLECTORS_SCALED_TO_ZERO, part=Part.COLLECTORS, what=what)
    elif workload is None:
        what = "the StatefulSet of the collectors is not there yet"
        yield Finding(reason=Reason.COLLECTORS_NOT_READY, part=Part.COLLECTORS, what=what)
    else:
        kinds = (Reason.COLLECTORS_NOT_READY, Reason.COLLECTORS_UPDATING)
        yield from _of_workload(workload, Part.COLLECTORS, "collector", *kinds)


def _of_shippers(facts: Facts, pipeline: LogPipeline) -> Iterator[Finding]:
    shippers, workload = pipeline.spec.shippers, facts.shippers
    if not shippers.enabled or shippers.mode == "sidecar":
        return
    if workload is None:
        what = "the DaemonSet of the shippers is not there yet"
        yield Finding(reason=Reason.SHIPPERS_NOT_READY, part=Part.SHIPPERS, what=what)
    elif workload.wanted == 0 and workload.is_current:
        what = "no node fits the shippers' nodeSelector, affinity and tolerations"
        yield Finding(reason=Reason.NO_NODES, part=Part.SHIPPERS, what=what)
    else:
        kinds = (Reason.SHIPPERS_NOT_READY, Reason.SHIPPERS_UPDATING)
        yield from _of_workload(workload, Part.SHIPPERS, "shipper", *kinds)


def _of_nodes(jetstream: JetStreamFacts) -> Iterator[Finding]:
    """Yield the problems that shippers report themselves."""
    part = Part.SHIPPERS
    for each in jetstream.behind:
        if each.problem:
            what = f"{each.name}: {each.problem}"
            yield Finding(reason=Reason.SHIPPER_TROUBLE, part=part, what=what, advice="")
    if late := behind_hosts(jetstream):
        limit = f"more than {BEHIND_S / 60:.0f} min"
        what = f"lines of {counted(len(late), 'node')} have waited for {limit}: {listed(late)}"
        yield Finding(reason=Reason.NODES_BEHIND, part=part, what=what)


def behind_hosts(jetstream: JetStreamFacts) -> list[str]:
    """Return the hosts whose lines have waited too long, sorted."""
    return sorted({host for each in jetstream.behind for host in each.hosts})


def _of_table(facts: Facts, pipeline: LogPipeline) -> Iterator[Finding]:
    if not pipeline.spec.table.enabled:
        return
    part, kinds = Part.TABLE, (Reason.TABLE_NOT_READY, Reason.TABLE_NOT_READY)
    if facts.table is None:
        what = f"the {_kind_of_table(pipeline)} of the table is not there yet"
        yield Finding(reason=Reason.TABLE_NOT_READY, part=part, what=what)
    else:
        yield from _of_workload(facts.table, part, "table", *kinds)
    state = facts.jetstream.table if facts.jetstream is not None else None
    if state is None:
        return
    if state.progress is not None and state.progress.problem:
        what = f"the table's job says: {state.progress.problem}"
        yield Finding(reason=Reason.TABLE_FAILED, part=part, what=what, advice="")
    if state.misses:
        streams = listed(state.misses)
        what = f"the table misses lines of {streams}: they were deleted when these were full"
        yield Finding(reason=Reason.TABLE_OVERTAKEN, part=part, what=what)
    elif state.held_back:
        yield _of_held_back(state.held_back, pipeline)
    if state.overtaken_soon:
        streams = listed(state.overtaken_soon)
        what = f"lines that are not in the table yet are about to be deleted from {streams}"
        yield Finding(reason=Reason.TABLE_FALLING_BEHIND, part=part, what=what)


def _of_held_back(streams: Sequence[str], pipeline: LogPipeline) -> Finding:
    stream = pipeline.spec.stream
    skip = max(stream.trim_above, stream.skip_tables_above)
    then = (
        "shippers wait when they are full"
        if skip >= 100
        else f"above {skip} % these lines are deleted before the table reads them"
    )
    what = (
        f"the table holds trimming back: {listed(streams)} fill above {stream.trim_above} % with "
        f"lines that are in files, and not in the table yet; {then}"
    )
    return Finding(reason=Reason.TABLE_HOLDS_BACK, part=Part.TABLE, what=what)


def _kind_of_table(pipeline: LogPipeline) -> str:
    is_application = pipeline.spec.table.runner == "sparkApplication"
    return "SparkApplication" if is_application else "StatefulSet"


def _of_workload(
    workload: Workload, part: Part, noun: str, not_ready: Reason, updating: Reason
) -> Iterator[Finding]:
    wanted = counted(workload.wanted, noun)
    if workload.ready < workload.wanted:
        where = f", not on {listed(workload.nodes)}" if workload.nodes else ""
        what = f"{workload.ready} of {wanted} ready{where}"
        yield Finding(reason=not_ready, part=part, what=what)
    elif not workload.is_current:
        what = f"Kubernetes has not acted on the last change of the {noun}s yet"
        yield Finding(reason=not_ready, part=part, what=what)
    elif workload.present > workload.wanted:
        surplus = counted(workload.present - workload.wanted, noun)
        what = f"{surplus} more than wanted; each is removed when its partitions are handed over"
        yield Finding(reason=updating, part=part, what=what, advice="")
    elif workload.updated < workload.wanted:
        what = f"{workload.updated} of {wanted} run the current configuration and image"
        yield Finding(reason=updating, part=part, what=what)
