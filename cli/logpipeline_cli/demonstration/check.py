"""The final check of the demo: compares the written lines with those in files and in the table."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from logpipeline.layout import Layout
from logpipeline_cli.demonstration.screen import Progress
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.outputs import Collected, lines_by_place
from logpipeline_demo.realfiles import RealFile, default_place
from logpipeline_demo.verdict import Verdict
from logpipeline_spark.table.storage import LocalStorage, Storage

EXPLAINED_MAX = 20


@dataclass(frozen=True, slots=True)
class Account:
    """Numbers of lines by origin; *left_out* are of files that were left out at first, and shipped
    later.
    """

    application: int
    machine: int
    probe: int
    left_out: int = 0

    @property
    def total(self) -> int:
        """All lines."""
        return self.application + self.machine + self.probe + self.left_out

    def holds(self, due: Account) -> bool:
        """Return whether each origin has at least as many lines as in *due*."""
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
    """The origins of places; all places that are not listed are the application's."""

    machine: Collection[str]
    probe: str
    left_out: Collection[str]

    def account(self, lines: Mapping[str, int]) -> Account:
        """Return the sums of *lines*, which are given by place."""
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
    """Yield the reasons why there are more or fewer collected *lines* than were checked, as signed
    terms that add up to the difference; nothing if the numbers are equal.
    """
    changed = {left.path: left.reason for left in verdict.left_out}
    checked = {source.key: source for source in verdict.sources}
    terms = []
    later = 0
    for file in real:
        collected = lines.get(file.place, 0)
        if reason := changed.get(file.path):
            terms.append((collected, f"of {file.path}, which is not checked: {reason}"))
        elif checked[file.key].is_clean:
            later += collected - checked[file.key].expected
    terms.append((later, "written to this machine's files after the end"))
    terms.append((account.left_out, "of files that were left out at first"))
    recovered = sum(source.recovered for source in verdict.sources)
    terms.append((recovered, "of which the application does not know whether it wrote them"))
    rest = account.total - verdict.lines - sum(count for count, _ in terms)
    terms.append((rest, "by what is lost, came twice, or belongs to no source; see above"))
    return (f"{count:+d} {what}" for count, what in terms if count)


@dataclass(frozen=True, slots=True)
class Written:
    """All written lines: the application's ledger, and the machine's files with the probe's."""

    expected: Expected
    real: Sequence[RealFile]
    origins: Origins

    def due(self) -> Account:
        """Return the numbers of lines that must be collected at least."""
        lines = {file.place: _lines_due(file) for file in self.real}
        of_real = self.origins.account(lines)
        return Account(self.expected.lines, of_real.machine, of_real.probe)

    def holds_all(self, collected: Collected, due: Account) -> bool:
        """Return whether all lines that are *due* are collected."""
        return self.origins.account(collected.lines).holds(due)


def check_files(written: Written, layout: Layout, progress: Progress) -> Verdict:
    """Check the collectors' files, and print the numbers of lines."""
    collectors = layout.collectors()
    progress.begin("checking every line of the collectors' files")
    verdict = check(
        written.expected,
        collectors,
        real_files=written.real,
        is_ignored=lambda place: place in written.origins.left_out,
        on_progress=lambda done, logs: progress.update(f"{done} of {logs} logs are checked"),
    )
    lines = lines_by_place(collectors)
    account = written.origins.account(lines)
    if explanation := verdict.explain(EXPLAINED_MAX):
        print(explanation)
    print(f"collected: {account}")
    for difference in differences(verdict, lines, written.real, account):
        print(f"  not as many as are checked: {difference}")
    return verdict


def check_table(written: Written, layout: Layout, progress: Progress) -> bool:
    """Check the table as the files are checked, print the result, and return whether it is
    clean.
    """
    folder = layout.data / "table-as-files"
    progress.begin("reading the table back, and checking every line of it")
    write_out(
        LocalStorage(layout.table),
        folder,
        on_progress=lambda rows: progress.update(f"{rows} lines are read"),
    )
    origins = written.origins
    places = {file.place for file in written.real}
    # Lines of this machine's files may be no valid UTF-8, so only their number is compared.
    verdict = check(
        written.expected,
        [folder],
        is_ignored=lambda place: place in origins.left_out or place in places,
        on_progress=lambda done, logs: progress.update(f"{done} of {logs} logs are checked"),
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
        # Lines that were written after the end may be in only one of the two.
        least = most if file.change() else min(most, _lines_due(file))
        if not least <= have <= most:
            yield f"the table has {have} lines of {file.place}, the files have {most}"


def _lines_due(file: RealFile) -> int:
    if file.change():
        return 0
    return sum(chunk.count(b"\n") for chunk in file.must())


ROWS_AT_ONCE = 20_000
FILES_OPEN_MAX = 128
_COLUMNS = "host, namespace, pod, container, source, line, piece, raw"


class Row(NamedTuple):
    """A line with its origin."""

    host: str
    namespace: str | None
    pod: str | None
    container: str | None
    source: str | None
    line: str
    piece: str | None
    raw: bytes | None

    @property
    def content(self) -> bytes:
        """The bytes of the line; only the last piece of a line has its end."""
        line = self.line.encode() if self.raw is None else self.raw
        return line + b"\n" if self.piece in (None, "end") else line


def write_out(
    storage: Storage, folder: Path, on_progress: Callable[[int], None] = lambda rows: None
) -> int:
    """Write the lines of the table in *storage* into files below *folder*, as collectors do, in the
    order of the streams; return their number. *on_progress* is called with the number so far.
    """
    from logpipeline_cli.tables.duck import opened
    from logpipeline_spark.formats.choice import logs_of
    from logpipeline_spark.table.s3 import S3Options

    logs = logs_of("delta", storage, catalog={}, s3=S3Options())
    with opened(storage, logs) as connection, _Files(folder) as files:
        answer = connection.execute(
            f"SELECT {_COLUMNS} FROM lines ORDER BY stream, incarnation, seq, idx"
        )
        count = 0
        while rows := answer.fetchmany(ROWS_AT_ONCE):
            for values in rows:
                row = Row(*values)
                files.of(place_of(row)).write(row.content)
            count += len(rows)
            on_progress(count)
    return count


def place_of(row: Row) -> str:
    """Return the path at which a collector writes the lines of *row*'s source by default."""
    if row.pod:
        return f"{row.host}/{row.namespace}/{row.pod}/{row.container}.log"
    return default_place(row.host, Path(row.source or ""))


class _Files:
    """Files that are appended to, of which a limited number is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def of(self, place: str) -> BinaryIO:
        """Return the file at *place*."""
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) >= FILES_OPEN_MAX:
                self._open.popitem(last=False)[1].close()
            path = self._folder / "logs" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        self._open[place] = file
        return file
