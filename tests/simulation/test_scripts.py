"""Short worlds that are played by hand find nothing, and each planted defect is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulated.mutations import DEFECTS
from simulated.planting import known
from simulated.scripts import SCRIPTS

SUPPORT = Path(__file__).parents[1] / "support"


def campaign(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command of the same name."""
    command = [sys.executable, str(SUPPORT / "simulated" / "campaign.py"), *words]
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.smoke
def test_scripts_find_nothing() -> None:
    """All lines are there once, books balance, and nothing happens that a script does not say."""
    done = campaign("--scripts")

    assert done.returncode == 0, done.stdout + done.stderr


def test_scripts_see_planted_defects() -> None:
    """Each defect where it is known to show, but for those that only a long world shows."""
    done = campaign("--known", "short")

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_shows_a_defect_is_known_of_each() -> None:
    """Or it is said why nothing shows it."""
    assert [row["defect"] for row in known()] == list(DEFECTS)


def test_scripts_aim_at_defects_that_there_are() -> None:
    """A defect that is renamed is renamed in the scripts, too."""
    aims = {aim for script in SCRIPTS.values() for aim in script.aims}

    assert aims <= set(DEFECTS)
