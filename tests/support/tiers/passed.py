"""Which steps have passed on the files as they are now, so that none is run twice in a row."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiers.part import VARIABLE
from tiers.results import Case, Result
from tiers.steps import ROOT, Step

# What changes which tests run, or how many.
VARIABLES = ("REQUIRE_ALL", "SOAK", "SEED", "FAULT_ROUNDS", "HYPOTHESIS_PROFILE", VARIABLE)


class Passed:
    """The steps that passed on one state of the files; kept in *file*."""

    def __init__(self, file: Path, state: str) -> None:
        self._file = file
        self._state = state

    def find(self, step: Step) -> Result | None:
        """Return how *step* passed on these files before, if it did."""
        found = self._read().get(step.name)
        if found is None or found["command"] != list(step.command):
            return None
        cases = tuple(Case(*each) for each in found["cases"])
        seconds, cpu_s = float(found["seconds"]), float(found["cpu_s"])
        return Result(step.name, step.command[0], 0, seconds, cpu_s, cases, is_reused=True)

    def add(self, step: Step, result: Result) -> None:
        """Note that *step* has passed."""
        steps = self._read()
        steps[step.name] = {
            "command": list(step.command),
            "seconds": result.seconds,
            "cpu_s": result.cpu_s,
            "cases": [list(asdict(case).values()) for case in result.cases],
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"state": self._state, "steps": steps}))
        temporary.replace(self._file)

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return dict(found["steps"]) if found.get("state") == self._state else {}


def state_of_files(root: Path = ROOT) -> str:
    """Return a hash of all files that git knows or would take, of Python and of what tests read
    from the environment.

    Raises:
        RuntimeError: this is no checkout of git's.
    """
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, cwd=root, capture_output=True, check=False)
    if listed.returncode:
        raise RuntimeError(f"git cannot say which files there are: {listed.stderr.decode()}")
    digest = hashlib.sha256(sys.version.encode())
    for variable in VARIABLES:
        digest.update(f"{variable}={os.environ.get(variable)}\0".encode())
    for name in sorted(set(listed.stdout.split(b"\0")) - {b""}):
        path = root / os.fsdecode(name)
        content = path.read_bytes() if path.is_file() else b"gone"
        digest.update(name + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()
