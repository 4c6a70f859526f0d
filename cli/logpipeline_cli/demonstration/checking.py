"""The final check: compares the written lines with the archived ones, in files and in the table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from logpipeline_cli.demonstration.archived import Archived
from logpipeline_cli.demonstration.screen import Progress
from logpipeline_cli.local.layout import Layout
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.outputs import lines_by_place
from logpipeline_demo.realfiles import RealFile
from logpipeline_demo.verdict import Verdict

EXPLAINED_MAX = 20


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


@dataclass(frozen=True, slots=True)
class Written:
    """All that was written: the application's ledger, and files of the machine with the probe's."""

    expected: Expected
    real: Sequence[RealFile]
    origins: Origins

    def due(self) -> Account:
        """Return how many lines must be archived at least."""
        lines = {file.place: _lines_due(file) for file in self.real}
        of_real = self.origins.account(lines)
        return Account(self.expected.lines, of_real.machine, of_real.probe)

    def holds_all(self, archived: Archived, due: Account) -> bool:
        """Return whether so many lines are archived as are *due*."""
        return self.origins.account(archived.lines).holds(due)


def check_files(written: Written, layout: Layout, progress: Progress) -> Verdict:
    """Check the collectors' files, and print what they hold."""
    collectors = layout.collectors()
    progress.begin("checking every line of the collectors' files")
    verdict = check(
        written.expected,
        collectors,
        real_files=written.real,
        is_ignored=lambda place: place in written.origins.left_out,
        on_progress=lambda done, logs: progress.tell(f"{done} of {logs} logs are checked"),
    )
    lines = lines_by_place(collectors)
    account = written.origins.account(lines)
    if explanation := verdict.explain(EXPLAINED_MAX):
        print(explanation)
    print(f"archived: {account}")
    for difference in differences(verdict, lines, written.real, account):
        print(f"  not as many as are checked: {difference}")
    return verdict


def check_table(written: Written, layout: Layout, progress: Progress) -> bool:
    """Check the table as the files are checked, print how it is, and return whether it is well."""
    from logpipeline_cli.demonstration.written_out import write_out
    from logpipeline_spark.table.storage import LocalStorage

    folder = layout.data / "table-as-files"
    progress.begin("reading the table back, and checking every line of it")
    write_out(
        LocalStorage(layout.table),
        folder,
        on_progress=lambda rows: progress.tell(f"{rows} lines are read"),
    )
    origins = written.origins
    places = {file.place for file in written.real}
    # Lines of this machine's files may be no valid UTF-8, so only their number is compared.
    verdict = check(
        written.expected,
        [folder],
        is_ignored=lambda place: place in origins.left_out or place in places,
        on_progress=lambda done, logs: progress.tell(f"{done} of {logs} logs are checked"),
    )
    in_table, in_files = lines_by_place([folder]), lines_by_place(layout.collectors())
    wrong = list(_unequal(written.real, in_table, in_files))
    if explanation := verdict.explain(EXPLAINED_MAX):
        print(explanation)
    for sentence in wrong:
        print(sentence)
    account, of_files = origins.account(in_table), origins.account(in_files)
    same = "the same" if account == of_files else f"{account.total - of_files.total:+d}"
    print(f"the table: {account}, {same}")
    return verdict.is_clean and not wrong


def _unequal(
    real: Sequence[RealFile], in_table: Mapping[str, int], in_files: Mapping[str, int]
) -> Iterator[str]:
    """Yield for which files the table has too few lines, or more than the collectors wrote."""
    for file in real:
        have, most = in_table.get(file.place, 0), in_files.get(file.place, 0)
        # Lines that came after the end may have reached only one of the two.
        least = most if file.change() else min(most, _lines_due(file))
        if not least <= have <= most:
            yield f"the table has {have} lines of {file.place}, the files have {most}"


def _lines_due(file: RealFile) -> int:
    if file.change():
        return 0
    return sum(chunk.count(b"\n") for chunk in file.must())
