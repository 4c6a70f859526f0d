"""Alerts, evaluated by Prometheus' own engine over series that a test makes up."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from go_programs import built

ROOT = Path(__file__).resolve().parents[2]
CHART_ALERTS = ROOT / "charts" / "logpipeline" / "files" / "alerts.yaml"
LOCAL_ALERTS = ROOT / "deploy" / "local" / "alerts.yml"
# As often as the chart has the operator scraped.
STEP_S = 30
STEPS_IN_15_MIN = 30
# The chart's own values, by the words that it replaces.
VALUES = {
    "RELEASE_NAMESPACE": "logging",
    "OPERATOR": "logpipeline-operator",
    "NOT_READY_FOR": "10m",
    "LAG_BYTES": str(2**30),
    "LAG_SECONDS": "300",
}
EVALUATED_WITHIN_S = 120.0
_UNITS_S = {"s": 1, "m": 60, "h": 3600}

Value = float | None


@dataclass(frozen=True, slots=True)
class Series:
    """What Prometheus has of one series: a value for each step, None where there was none."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[Value]


def chart_rules() -> dict[str, dict[str, Any]]:
    """Return the chart's alerts by their names, with its default values."""
    text = CHART_ALERTS.read_text()
    for word, value in VALUES.items():
        text = text.replace(word, value)
    return {rule["alert"]: rule for rule in yaml.safe_load(text)}


def local_rules() -> dict[str, dict[str, Any]]:
    """Return the alerts for one machine by their names."""
    (group,) = yaml.safe_load(LOCAL_ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def firing(rule: Mapping[str, Any], *series: Series) -> list[list[float]]:
    """Return the values with which *rule* fires in each step; it fires for a set of labels that its
    expression has yielded for as long as its `for` says.
    """
    waits = _steps(str(rule.get("for", "0s")))
    since: dict[tuple[tuple[str, str], ...], int] = {}
    fired: list[list[float]] = []
    for step, found in enumerate(yielded(str(rule["expr"]), *series)):
        since = {labels: since.get(labels, step) for labels in found}
        fired.append([value for labels, value in found.items() if step - since[labels] >= waits])
    return fired


def yielded(expression: str, *series: Series) -> list[dict[tuple[tuple[str, str], ...], float]]:
    """Return what *expression* yields in each step: values by sorted labels."""
    asked = {
        "step_s": STEP_S,
        "series": [
            {"labels": {"__name__": each.name} | dict(each.labels), "values": list(each.values)}
            for each in series
        ],
        "expressions": [expression],
    }
    done = subprocess.run(
        [built("promql")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=EVALUATED_WITHIN_S,
    )
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    return [
        {tuple(sorted(each["labels"].items())): each["value"] for each in step} for step in answer
    ]


def _steps(duration: str) -> int:
    matched = re.fullmatch(r"(\d+)([smh])", duration)
    assert matched is not None, duration
    return int(matched[1]) * _UNITS_S[matched[2]] // STEP_S
