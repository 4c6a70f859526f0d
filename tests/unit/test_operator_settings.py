"""What an operator may be set to, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from logpipeline.spec.crd import CHECKED_EVERY_S, UNCHECKED_AFTER_S
from logpipeline_operator.main import ROUNDS_APART
from logpipeline_operator.ownership import MARGIN_S
from logpipeline_operator.settings import RESYNC_MAX_S, read

CHART = Path(__file__).resolve().parents[2] / "charts" / "logpipeline"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def test_the_longest_allowed_period_leaves_every_status_fresh() -> None:
    """A pipeline is looked at in each round, at any time of it: at the begin of one and at the end
    of the next. Until then no other operator may take it, and no alert fires.
    """
    between_looks_s = (ROUNDS_APART[1] + 1) * RESYNC_MAX_S

    assert CHECKED_EVERY_S + between_looks_s < UNCHECKED_AFTER_S - MARGIN_S


def test_the_chart_takes_no_longer_period_than_the_operator() -> None:
    """Helm refuses what the operator would not start with."""
    assert SCHEMA["properties"]["resyncSeconds"]["maximum"] == RESYNC_MAX_S
    assert read([], {"LOGPIPELINE_RESYNC_SECONDS": str(RESYNC_MAX_S)}).resync_s == RESYNC_MAX_S


@pytest.mark.parametrize("name", ["RESYNC_SECONDS", "LEASE_SECONDS", "LOOK_AGAIN_SECONDS"])
@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "1e9", "often"])
def test_a_period_that_makes_no_sense_is_refused_by_its_name(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the start, and not when pipelines are already left alone."""
    with pytest.raises(SystemExit):
        read([], {f"LOGPIPELINE_{name}": value})

    said = capsys.readouterr().err
    assert f"LOGPIPELINE_{name}={value}" in said


@pytest.mark.parametrize("text", ["release: kps", "[]", '{"release": 1}'])
def test_labels_that_are_none_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A Prometheus that chooses by them would see no pipeline."""
    with pytest.raises(SystemExit):
        read([], {"LOGPIPELINE_POD_MONITOR_LABELS": text})

    assert f"LOGPIPELINE_POD_MONITOR_LABELS={text}" in capsys.readouterr().err
