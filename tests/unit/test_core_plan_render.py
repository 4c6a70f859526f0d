"""A plan reads well, for people and for scripts."""

from __future__ import annotations

import json

from logpipeline.plan.apply import Outcome, Report, Result
from logpipeline.plan.model import FieldChange, Kind, Loss, Plan, Problem, Step
from logpipeline.plan.render import render_report, render_text, report_to_json, to_json

AGE = FieldChange(
    field="max_age",
    found=86_400_000_000_000,
    wanted=3_600_000_000_000,
    kind=Kind.DELETES_DATA,
    note="older messages are deleted at once",
    loss=Loss(5, 2048, "about 5 of 10 messages"),
)
STORAGE = FieldChange(
    field="storage", found="file", wanted="memory", kind=Kind.REFUSED, note="it is fixed"
)
LIMIT = FieldChange(field="max_msgs", found=-1, wanted=7, kind=Kind.IN_PLACE)


def plan(*steps: Step) -> Plan:
    """A plan with *steps*."""
    return Plan(pipeline="team/logs", steps=steps)


def change(stream: str, *changes: FieldChange, kind: Kind = Kind.IN_PLACE) -> Step:
    """A step with *changes*."""
    return Step(stream=stream, kind=kind, changes=changes)


def test_an_empty_plan_says_so() -> None:
    """One line, which names the pipeline."""
    assert render_text(plan()) == "LogPipeline team/logs: JetStream is as wanted\n"


def test_each_change_is_shown_with_its_class_and_its_reason() -> None:
    """Numbers are written as people write them, and what would be lost stands beside."""
    text = render_text(plan(change("LOGS_0", AGE, STORAGE, LIMIT, kind=Kind.REFUSED)))

    assert text.splitlines() == [
        "x stream LOGS_0: refused by the server",
        "    max_age: 1d -> 1h  deletes data; older messages are deleted at once: "
        "about 5 of 10 messages (2Ki)",
        "    storage: file -> memory  refused by the server; it is fixed",
        "    max_msgs: unlimited -> 7  in place",
        "LogPipeline team/logs: 1 refused by the server",
    ]


def test_partitions_that_change_alike_are_one_entry() -> None:
    """A thousand equal lines hide the one that differs."""
    steps = [Step(stream=f"LOGS_{number}", kind=Kind.CREATE) for number in range(10)]

    assert render_text(plan(*steps, change("LOGS_10", LIMIT))).splitlines() == [
        "+ stream LOGS_0 to LOGS_9 (10): create",
        "~ stream LOGS_10: in place",
        "    max_msgs: unlimited -> 7  in place",
        "LogPipeline team/logs: 10 create, 1 in place",
    ]


def test_problems_and_left_over_streams_are_shown() -> None:
    """What blocks is an error, what does not is a warning."""
    made = Plan(
        pipeline="team/logs",
        problems=(Problem("old", "update it"), Problem("many", "mind", is_blocking=False)),
        unwanted=("LOGS_8", "LOGS_9"),
    )

    text = render_text(made)

    assert "error: update it (old)\nwarning: mind (many)\n" in text
    assert "LOGS_8, LOGS_9" in text


def test_a_report_tells_what_was_not_done_and_why() -> None:
    """What was done is counted; what was held back or refused is named."""
    report = Report(
        outcomes=(
            Outcome(step=change("LOGS_0", LIMIT, AGE), result=Result.DONE, held=(AGE,)),
            Outcome(step=change("LOGS_1", LIMIT), result=Result.REFUSED, detail="no room"),
        )
    )

    lines = render_report(report).splitlines()

    assert lines[0].startswith("stream LOGS_0 held back: max_age: 1d -> 1h")
    assert lines[1:] == ["stream LOGS_1 refused: no room", "1 of 2 steps done"]
    assert not report.is_complete


def test_a_plan_that_is_blocked_says_by_what() -> None:
    """The report of an apply that did nothing carries the reason."""
    report = Report(problems=(Problem("old", "update it"),))

    assert render_report(report).splitlines() == ["error: update it (old)", "0 of 0 steps done"]
    assert not report.is_complete


def test_scripts_get_plain_json() -> None:
    """Everything that the text says, as data."""
    data = json.loads(json.dumps(to_json(plan(change("LOGS_0", AGE, kind=Kind.DELETES_DATA)))))
    outcome = Outcome(step=change("LOGS_0", AGE), result=Result.HELD_BACK, held=(AGE,))
    report = json.loads(json.dumps(report_to_json(Report(outcomes=(outcome,)))))

    assert data["empty"] is False
    assert data["steps"][0]["kind"] == "deletes data"
    assert data["steps"][0]["changes"][0]["loss"]["messages"] == 5
    assert report["complete"] is False
    assert report["outcomes"][0] == {
        "asset": "stream LOGS_0",
        "result": "held back",
        "detail": "",
        "held": ["max_age"],
    }
