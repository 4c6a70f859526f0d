"""The plan and what became of it, for people and for scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from logpipeline.plan.apply import Report, Result
from logpipeline.plan.model import FieldChange, Kind, Plan, Problem, Step
from logpipeline.quantity import format_bytes, format_duration

# Fields whose numbers are bytes, and those that are nanoseconds.
_BYTES = ("max_bytes", "max_msg_size")
_TIMES = (
    "max_age",
    "duplicate_window",
    "subject_delete_marker_ttl",
    "ack_wait",
    "max_expires",
    "idle_heartbeat",
    "inactive_threshold",
)
_UNLIMITED = ("max_bytes", "max_msg_size", "max_msgs", "max_msgs_per_subject", "max_age")

_SIGNS = {
    Kind.CREATE: "+",
    Kind.IN_PLACE: "~",
    Kind.DELETES_DATA: "!",
    Kind.REFUSED: "x",
    Kind.DELETE: "-",
    Kind.ADOPT_NEEDED: "?",
}
_NEEDS = {
    Kind.DELETES_DATA: "held back unless data loss is allowed",
    Kind.DELETE: "held back unless data loss is allowed",
    Kind.ADOPT_NEEDED: "never touched unless spec.stream.adopt is set",
}


def render_text(plan: Plan) -> str:
    """Return the plan as lines for a terminal, ending in a summary."""
    lines = _problem_lines(plan.problems)
    for steps in _alike(plan.steps):
        lines += _step_lines(steps)
    if plan.unwanted:
        names = ", ".join(plan.unwanted)
        lines.append(
            f"  no longer wanted, and kept, since they may hold lines: {names}"
            " (remove them with `nats stream rm` once they are collected)"
        )
    return "\n".join([*lines, _summary(plan)]) + "\n"


def render_report(report: Report) -> str:
    """Return the outcomes of a plan as lines for a terminal; those that succeeded are counted."""
    lines = _problem_lines(report.problems)
    for outcome in report.outcomes:
        is_listed = outcome.result is Result.HELD_BACK and outcome.held and not outcome.detail
        if outcome.result is not Result.DONE and not is_listed:
            detail = f": {outcome.detail}" if outcome.detail else ""
            lines.append(f"{outcome.step.asset} {outcome.result}{detail}")
        lines += [
            f"{outcome.step.asset} held back: {_change_text(change)}"
            for change in outcome.held
            if outcome.step.kind is not Kind.ADOPT_NEEDED
        ]
    done = sum(outcome.result is Result.DONE for outcome in report.outcomes)
    lines.append(f"{done} of {len(report.outcomes)} steps done")
    return "\n".join(lines) + "\n"


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain JSON data."""
    return {
        "pipeline": plan.pipeline,
        "empty": plan.is_empty,
        "problems": [asdict(problem) for problem in plan.problems],
        "steps": [
            {
                "asset": step.asset,
                "stream": step.stream,
                "consumer": step.consumer,
                "kind": str(step.kind),
                "note": step.note,
                "changes": [
                    {**asdict(change), "kind": str(change.kind)} for change in step.changes
                ],
            }
            for step in plan.steps
        ],
        "unwanted": list(plan.unwanted),
    }


def report_to_json(report: Report) -> dict[str, Any]:
    """Return the outcomes of a plan as plain JSON data."""
    return {
        "complete": report.is_complete,
        "problems": [asdict(problem) for problem in report.problems],
        "outcomes": [
            {
                "asset": outcome.step.asset,
                "result": str(outcome.result),
                "detail": outcome.detail,
                "held": [change.field for change in outcome.held],
            }
            for outcome in report.outcomes
        ],
    }


def _problem_lines(problems: tuple[Problem, ...]) -> list[str]:
    return [
        f"{'error' if problem.is_blocking else 'warning'}: {problem.message} ({problem.id})"
        for problem in problems
    ]


def _alike(steps: tuple[Step, ...]) -> Iterator[list[Step]]:
    # A change of a thousand partitions is one thing to read.
    def sameness(step: Step) -> object:
        changes = [(c.field, repr(c.found), repr(c.wanted), c.kind, c.loss) for c in step.changes]
        number = re.search(r"\d+$", step.stream)
        base = step.stream[: number.start()] if number else step.stream
        # The number stands for nothing but the partition.
        return base, bool(number), step.consumer, step.kind, step.note, changes

    for _, group in groupby(steps, key=sameness):
        yield list(group)


def _step_lines(steps: list[Step]) -> Iterator[str]:
    first, last = steps[0], steps[-1]
    name = first.asset if len(steps) == 1 else f"{first.asset} to {last.stream} ({len(steps)})"
    remarks = [text for text in (first.note, _NEEDS.get(first.kind, "")) if text]
    tail = f": {'; '.join(remarks)}" if remarks else ""
    yield f"{_SIGNS[first.kind]} {name}: {first.kind}{tail}"
    for change in first.changes:
        yield f"    {_change_text(change)}"


def _change_text(change: FieldChange) -> str:
    found, wanted = _value(change.field, change.found), _value(change.field, change.wanted)
    text = f"{change.field}: {found} -> {wanted}  {change.kind}"
    if change.note:
        text += f"; {change.note}"
    if change.loss is not None:
        lost = f" ({format_bytes(change.loss.bytes)})" if change.loss.bytes else ""
        text += f": {change.loss.text}{lost}"
    return text


def _value(field: str, value: Any) -> str:
    if field in _UNLIMITED and value in (-1, 0):
        return "unlimited"
    if field in _TIMES and isinstance(value, int):
        return format_duration(value)
    if field in _BYTES and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value not in ("", [], {}) else "none"


def _summary(plan: Plan) -> str:
    if plan.is_empty:
        return f"LogPipeline {plan.pipeline}: JetStream is as wanted"
    counts = [
        f"{sum(step.kind is kind for step in plan.steps)} {kind}"
        for kind in Kind
        if any(step.kind is kind for step in plan.steps)
    ]
    return f"LogPipeline {plan.pipeline}: {', '.join(counts)}"
