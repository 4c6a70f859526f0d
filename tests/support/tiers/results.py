"""What a step came to: how it ended, how many tests it counted, and which were slow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tiers.steps import ROOT

FAILURES = {"failure", "error"}
# How pytest tells where an error was raised, and that it was one of its own.
PLACE = re.compile(r"\S+\.py:\d+: ")
INTERNAL = "internal error"
# How much is kept of a reason.
INTERNAL_LINES, MESSAGE_LINES = 4, 4


@dataclass(frozen=True, slots=True)
class Case:
    """One test: its name as pytest takes it, its *seconds*, with set-up and clean-up, and the
    *reason* why it failed, if it did: the error and the place.
    """

    name: str
    seconds: float
    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A step that has ended. *program* is what it ran; *cpu_s* is of all its processes that were
    waited for.
    """

    name: str
    program: str
    code: int
    seconds: float
    cpu_s: float
    cases: tuple[Case, ...] = ()
    is_reused: bool = False
    is_build: bool = False

    @property
    def is_good(self) -> bool:
        """Whether it ended well."""
        return self.code == 0

    @property
    def fails_run(self) -> bool:
        """Whether it makes the run fail. A failed build does not: the tests that need what it makes
        are skipped, or fail where everything is required.
        """
        return not self.is_good and not self.is_build

    def count(self, outcome: str) -> int:
        """Return how many of its tests came to *outcome*: passed, failed or skipped."""
        return sum(case.outcome == outcome for case in self.cases)


def cases_in(report: Path) -> tuple[Case, ...]:
    """Return the tests of a report in JUnit's form; none where pytest wrote none."""
    if not report.exists():
        return ()
    found: dict[str, Case] = {}
    for entry in ElementTree.parse(report).iter("testcase"):
        # Where pytest itself fails, the test under way stands there without a name.
        if entry.get("name") is None:
            continue
        name = _name_of(entry)
        case = Case(name, float(entry.get("time", "0")), _outcome(entry), _reason(entry))
        former = found.get(name)
        # A test that passed and whose clean-up failed stands there twice.
        if former is None or former.outcome != "failed":
            found[name] = case
    return tuple(found.values())


def _name_of(entry: ElementTree.Element) -> str:
    """Return the name by which pytest runs the test: its file, its class if it has one, and its
    function. *file* is where the function stands, which for a state machine is a library.
    """
    words = entry.get("classname", "").split(".")
    for count in range(len(words), 0, -1):
        file = "/".join(words[:count]) + ".py"
        if (ROOT / file).is_file():
            return "::".join([file, *words[count:], entry.get("name", "")])
    return f"{entry.get('file', '')}::{entry.get('name', '')}"


def _reason(entry: ElementTree.Element) -> str:
    """Return why it failed: what the error says, and where it was raised; of an error of pytest
    itself, the end of its text. Logs may stand behind a traceback.
    """
    said: list[str] = []
    for child in entry:
        if child.tag in FAILURES:
            lines = [line.strip() for line in (child.text or "").splitlines() if line.strip()]
            if child.get("message") == INTERNAL:
                said += lines[-INTERNAL_LINES:]
            else:
                places = [line for line in lines if PLACE.match(line)]
                said += [*child.get("message", "").splitlines()[:MESSAGE_LINES], *places[-1:]]
    return "\n".join(said)


def _outcome(entry: ElementTree.Element) -> str:
    kinds = {child.tag for child in entry}
    if kinds & FAILURES:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"
