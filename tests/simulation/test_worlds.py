"""Whole pipelines in simulated worlds: whatever happens, each line is archived once and in order,
and the books balance.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
REGRESSIONS = Path(__file__).with_name("regressions.json")
# A world of three rounds is about six minutes.
SMOKE_SEEDS, HOURS, HOURS_OF_ONE_STREAM = 6, 3, 1


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the same name."""
    command = [sys.executable, str(SUPPORT / "simulated" / "campaign.py"), *words]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    paths = [str(SUPPORT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.smoke
def test_some_worlds_are_as_they_should_be() -> None:
    """A few minutes of each, with a few kinds of faults."""
    done = campaign("--seeds", str(SMOKE_SEEDS))

    assert done.returncode == 0, done.stdout + done.stderr


def test_hours_of_worlds_are_as_they_should_be() -> None:
    """Hours of a busy pipeline, with all kinds of faults."""
    done = campaign("--hours", str(HOURS))

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_hour_of_worlds_with_one_stream_is_as_it_should_be() -> None:
    """Collectors read it by its subjects, and pass what other partitions hold."""
    done = campaign("--hours", str(HOURS_OF_ONE_STREAM), "--single")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.smoke
def test_one_seed_has_one_history() -> None:
    """The digest of all that the server got is the same each time."""
    words = ["--seed", "3", "--rounds", "1"]
    run = [sys.executable, str(SUPPORT / "simulated" / "run.py"), *words]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"}

    digests = {
        json.loads(subprocess.check_output(run, env=environment).splitlines()[-1])["digest"]
        for _ in range(2)
    }

    assert len(digests) == 1


@pytest.mark.smoke
@pytest.mark.parametrize("defect", ["owner_is_not_fenced", "silence_is_an_acknowledgement"])
def test_a_planted_defect_is_seen(defect: str) -> None:
    """Or else nothing would be."""
    done = campaign("--defects", defect, "--seeds", "20")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("row", json.loads(REGRESSIONS.read_text()), ids=lambda row: row["problem"])
def test_what_once_failed_is_mended(row: dict[str, object]) -> None:
    """Written down by `campaign.py --keep`."""
    only = ",".join(map(str, row["only"]))  # type: ignore[call-overload]
    words = ["--seed", str(row["seed"]), "--rounds", str(row["rounds"]), "--only", only]
    words += ["--single"] if "single" in row else []
    run = [sys.executable, str(SUPPORT / "simulated" / "run.py"), *words]
    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"}

    done = subprocess.run(run, capture_output=True, text=True, env=environment, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
