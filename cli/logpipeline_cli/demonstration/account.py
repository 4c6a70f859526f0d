"""Says where the archived lines come from, so that all numbers of a run add up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from logpipeline_demo.realfiles import RealFile
from logpipeline_demo.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Account:
    """Lines by origin. *left_out* are files that were left out at first, and shipped later."""

    application: int
    machine: int
    probe: int
    left_out: int = 0

    @property
    def total(self) -> int:
        """All lines."""
        return self.application + self.machine + self.probe + self.left_out

    def holds(self, due: Account) -> bool:
        """Return whether of each origin at least as many lines are there as are *due*."""
        return (
            self.application >= due.application
            and self.machine >= due.machine
            and self.probe >= due.probe
        )

    def __str__(self) -> str:
        parts = [
            f"{self.application} of the application",
            f"{self.machine} of this machine's files",
            f"{self.probe} of the probe",
        ]
        if self.left_out:
            parts.append(f"{self.left_out} of files that were left out at first")
        return f"{self.total} lines = {' + '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Origins:
    """Which place belongs to what; all other places are the application's."""

    machine: Collection[str]
    probe: str
    left_out: Collection[str]

    def account(self, lines: Mapping[str, int]) -> Account:
        """Add up *lines*, which are given by place."""
        sums = {"application": 0, "machine": 0, "probe": 0, "left_out": 0}
        for place, count in lines.items():
            sums[self._of(place)] += count
        return Account(**sums)

    def _of(self, place: str) -> str:
        if place == self.probe:
            return "probe"
        if place in self.machine:
            return "machine"
        return "left_out" if place in self.left_out else "application"


def differences(
    verdict: Verdict, lines: Mapping[str, int], real: Collection[RealFile], account: Account
) -> Iterator[str]:
    """Yield why there are more or fewer archived *lines* than were checked, as signed terms that
    lead from the one number to the other; nothing where they are equal.
    """
    changed = {left.path: left.reason for left in verdict.left_out}
    checked = {source.key: source for source in verdict.sources}
    terms = []
    later = 0
    for file in real:
        archived = lines.get(file.place, 0)
        if reason := changed.get(file.path):
            terms.append((archived, f"of {file.path}, which is not checked: {reason}"))
        elif checked[file.key].is_clean:
            later += archived - checked[file.key].expected
    terms.append((later, "written to this machine's files after the end"))
    terms.append((account.left_out, "of files that were left out at first"))
    recovered = sum(source.recovered for source in verdict.sources)
    terms.append((recovered, "of which the application does not know whether it wrote them"))
    rest = account.total - verdict.lines - sum(count for count, _ in terms)
    terms.append((rest, "by what is lost, came twice, or belongs to no source; see above"))
    return (f"{count:+d} {what}" for count, what in terms if count)
