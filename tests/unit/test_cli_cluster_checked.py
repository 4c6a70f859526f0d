"""What the plugin says of when an operator last looked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from logpipeline.spec.crd import UNCHECKED_AFTER_S
from logpipeline_cli.cluster.commands import checked_text, unchecked

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
OPERATOR = "logging/logpipeline-operator"


def resource(age_s: float | None, *, made_s: float = 86_400, **metadata: Any) -> dict[str, Any]:
    """A pipeline that was made so long ago, and looked at *age_s* ago."""
    made = {
        "metadata": {
            "name": "prod", "namespace": "team", "creationTimestamp": _text(made_s), **metadata,
        },
    }  # fmt: skip
    if age_s is None:
        return made
    return {**made, "status": {"lastChecked": _text(age_s), "checkedBy": OPERATOR}}


def _text(age_s: float) -> str:
    return (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_status_that_is_confirmed_is_no_problem() -> None:
    """It is said when that was, and by whom."""
    there = resource(UNCHECKED_AFTER_S - 1)

    assert unchecked(there, NOW) is None
    assert checked_text(there, NOW) == f"last checked 7 m ago by {OPERATOR}"


def test_status_that_no_operator_confirms_is_a_problem() -> None:
    """It says for how long, and where to look."""
    text = unchecked(resource(3600), NOW)

    assert text is not None
    assert "no operator has checked it for 60 m" in text
    assert text.endswith(f"look at the pods of {OPERATOR}")


def test_deletion_without_an_operator_has_a_way_out() -> None:
    """The command that lets the resource go is in the message."""
    ending: dict[str, Any] = {
        "deletionTimestamp": _text(3600),
        "finalizers": ["logpipeline.dev/cleanup"],
    }
    text = unchecked(resource(3600, **ending), NOW)

    assert text is not None
    assert "waits for logpipeline.dev/cleanup" in text
    assert "kubectl -n team patch logpipeline prod --type=merge" in text


def test_new_pipeline_has_time_to_be_looked_at() -> None:
    """Only one that was made long ago shows that no operator is there."""
    assert unchecked(resource(None, made_s=10), NOW) is None
    assert checked_text(resource(None, made_s=10), NOW) == "no operator has checked it yet"
    assert "no operator has checked it" in str(unchecked(resource(None), NOW))
