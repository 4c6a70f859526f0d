"""The final check: compares the written lines with the archived ones, in files and in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from logpipeline_cli.demonstration.account import Account, Origins, differences
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
    from logpipeline_spark.table.local import LocalStorage

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
