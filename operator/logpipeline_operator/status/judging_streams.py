"""What of a plan of JetStream, and of what became of it, keeps a pipeline from being ready."""

from __future__ import annotations

from collections.abc import Iterator

from logpipeline.plan.apply import Outcome, Result
from logpipeline.plan.model import Kind, Plan
from logpipeline_operator.status.errors import of_refusal
from logpipeline_operator.status.facts import JetStreamFacts
from logpipeline_operator.status.finding import Finding, Part
from logpipeline_operator.status.reasons import Reason

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


def of_plan(
    jetstream: JetStreamFacts, name: str, generation: int, *, is_active: bool
) -> Iterator[Finding]:
    """Yield what is wrong with JetStream as the pipeline *name* wants it; where the pipeline is not
    *active*, steps that wait are no matter here.
    """
    for problem in jetstream.plan.blocking:
        reason = _PROBLEMS.get(problem.id, Reason.STREAM_REFUSED)
        # A problem's text says what to do.
        yield _finding(reason, problem.message, advice="")
    for outcome in jetstream.report.outcomes if jetstream.report else ():
        yield from _of_outcome(outcome, name, generation)
    if jetstream.report is None and is_active and not jetstream.plan.is_empty:
        yield _finding(Reason.STREAMS_PENDING, "streams are not as wanted yet")


def warnings_of(plan: Plan) -> list[str]:
    """Return what applying does not run into, and users should know all the same."""
    return [problem.message for problem in plan.problems if not problem.is_blocking]


def steps_text(plan: Plan) -> list[str]:
    """Return the steps of *plan* in words: ``create stream LOGS_0``."""
    words = {Kind.CREATE: "create", Kind.DELETE: "delete", Kind.ADOPT_NEEDED: "take over"}
    return [f"{words.get(step.kind, 'change')} {step.asset}" for step in plan.steps]


def _of_outcome(outcome: Outcome, name: str, generation: int) -> Iterator[Finding]:
    asset = outcome.step.asset
    if outcome.result is Result.REFUSED:
        text = outcome.detail
        yield _finding(of_refusal(text), f"{asset}: {text}", advice=None if text else "")
    elif outcome.result in (Result.UNKNOWN, Result.CHANGED_MEANWHILE, Result.NOT_TRIED):
        # Looks again by itself; what stopped it has a finding of its own.
        yield _finding(Reason.STREAMS_PENDING, f"{asset}: it is not as wanted yet")
    elif outcome.step.kind is Kind.ADOPT_NEEDED:
        yield _finding(Reason.FOREIGN_STREAM, f"{asset}: {outcome.step.note or 'it is not ours'}")
    else:
        yield from _of_held(outcome, name, generation)


def _of_held(outcome: Outcome, name: str, generation: int) -> Iterator[Finding]:
    step = outcome.step
    deleting = [change.field for change in outcome.held if change.kind is Kind.DELETES_DATA]
    refused = [change.field for change in outcome.held if change.kind is Kind.REFUSED]
    if step.kind is Kind.DELETE and outcome.result is Result.HELD_BACK:
        text = f"{step.asset}: deleting it would lose its position"
        yield _finding(Reason.DATA_LOSS_HELD, text, advice=_permission(name, generation))
    if deleting:
        # How much is not told here: the number changes with each line that arrives.
        text = f"{step.asset}: changing {', '.join(deleting)} would delete stored lines"
        yield _finding(Reason.DATA_LOSS_HELD, text, advice=_permission(name, generation))
    if refused:
        text = f"{step.asset}: JetStream cannot change {', '.join(refused)}"
        yield _finding(Reason.CHANGE_IMPOSSIBLE, text)


def _permission(name: str, generation: int) -> str:
    return (
        "Take the change back, or allow it: kubectl annotate --overwrite logpipeline "
        f"{name} logpipeline.dev/allow-data-loss={generation} "
        "(kubectl logpipeline plan shows how much goes)."
    )


def _finding(reason: Reason, what: str, *, advice: str | None = None) -> Finding:
    return Finding(reason=reason, part=Part.STREAMS, what=what, advice=advice)
