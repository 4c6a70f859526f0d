"""Each sink keeps the contract, and the suite that says so finds planted defects."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard

from components.journal_sink import Journals, JournalSink, Lines, framed, read
from components.partition_files import FailingDescriptors, config_of
from components.sink_contract import PARTITION, ContractBroken, Died, check
from logpipeline.deduplication import SourceState
from logpipeline_collector.files import commit as commits
from logpipeline_collector.files.committed import CommittedFile, committed_files, read_succession
from logpipeline_collector.files.output import Append, OutputFiles
from logpipeline_collector.files.partition import FileStorage, PartitionFiles
from logpipeline_collector.files.state import State
from logpipeline_collector.sink import LocalCommit, SinkFull, SourceName

SEEDS = range(6)
# A defect is found by one of so many sequences.
SEEDS_OF_DEFECTS = range(60)
FOREIGN = "_lines.log"
# What a full disk takes of a write, as `FailingDescriptors` has it.
WRITTEN_BYTES = 2


class Files:
    """The collector's files as the suite sees them; *limits* are of their configuration."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits
        self._is_full = False
        self._disks: list[FailingDescriptors] = []

    def storage(self, folder: Path) -> FileStorage:
        """Return the storage in *folder*."""
        disk = FailingDescriptors()
        self._disks.append(disk)
        return FileStorage(config_of(folder, **self._limits), disk)

    def listed(self, folder: Path) -> dict[SourceName, bytes]:
        """Return what `files ls` and `files cat` show."""
        lines: dict[SourceName, bytes] = {}
        for file in committed_files(folder):
            host, _, source = file.place.partition("/_files/")
            name = (host, "" if source == FOREIGN else f"/{source}")
            lines[name] = lines.get(name, b"") + content(file)
        return lines

    def leftover_bytes(self, folder: Path) -> int:
        """Return what stands in files and is not committed."""
        known = {file.path: file.size for file in committed_files(folder)}
        found = [path for path in (folder / "logs").rglob("*") if path.is_file()]
        found += (folder / "state" / "main" / f"p{PARTITION}.new").iterdir()
        return sum(path.stat().st_size - known.get(path, 0) for path in found)

    def succession(self, folder: Path) -> tuple[int, str]:
        """Return what the state holds."""
        return read_succession(folder / "state" / "main" / f"p{PARTITION}.sqlite")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Take two bytes of each write, and no more."""
        self._disks[-1].write_errno = errno.ENOSPC
        yield
        self._disks[-1].write_errno = 0

    @contextmanager
    def dying(self, step: int) -> Iterator[None]:
        """Die at the *step*-th failpoint of a commit."""
        left = step

        def reach(name: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commits, "reach", reach)
            yield


def content(file: CommittedFile) -> bytes:
    """Return the committed bytes of *file*."""
    data = file.path.read_bytes()
    if file.is_compressed:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data[: file.length]


@pytest.mark.parametrize(
    "limits",
    [{}, {"rotate_bytes": 64}, {"rotate_bytes": 64, "compression": "zstd", "open_files_max": 1}],
    ids=["plain", "rotated", "compressed"],
)
def test_files_keep_the_contract(tmp_path: Path, limits: dict[str, Any]) -> None:
    """Whatever is written, committed and taken back, and wherever the process dies."""
    check(Files(**limits), tmp_path, SEEDS)


def test_journals_keep_the_contract(tmp_path: Path) -> None:
    """The suite asks for nothing that only files in a folder have."""
    check(Journals(), tmp_path, SEEDS)


def broken(implementation: Files | Journals, folder: Path) -> str:
    """Return what the suite finds wrong."""
    with pytest.raises(ContractBroken) as found:
        check(implementation, folder, SEEDS_OF_DEFECTS)
    return str(found.value)


# Defects of files.


def test_files_that_are_committed_before_they_are_synced_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes committed lines away."""
    monkeypatch.setattr(FailingDescriptors, "sync", lambda self, descriptor: None)

    assert "holds" in broken(Files(), tmp_path)


def test_files_that_are_not_truncated_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a dead process wrote stays behind the committed bytes."""
    monkeypatch.setattr(commits, "_cut", lambda row, output: row)

    assert "bytes are left that are not committed" in broken(Files(), tmp_path)


def test_files_that_are_recovered_without_their_scratch_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files of a dead process stay."""
    monkeypatch.setattr(commits, "_empty", lambda output: None)

    assert "bytes are left that are not committed" in broken(Files(), tmp_path)


def test_files_that_are_listed_with_what_is_not_committed_are_found(tmp_path: Path) -> None:
    """A reader that trusts the size of a file, and not the state."""

    class Sized(Files):
        def listed(self, folder: Path) -> dict[SourceName, bytes]:
            lines = super().listed(folder)
            for file in committed_files(folder):
                if not file.is_rotated and not file.place.endswith(FOREIGN):
                    host, _, source = file.place.partition("/_files/")
                    lines[host, f"/{source}"] = file.path.read_bytes()
            return lines

    assert "holds" in broken(Sized(), tmp_path)


def test_a_full_disk_that_leaves_a_part_of_a_message_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half of a line would be followed by the whole of it."""

    def append(self: OutputFiles, appends: Iterable[Append]) -> None:
        for file, data, tail in appends:
            self.dirty[file] = None
            try:
                self._write(file, data)
            except SinkFull:
                file.length += WRITTEN_BYTES
                raise
            file.length, file.tail = file.length + len(data), tail

    monkeypatch.setattr(OutputFiles, "append", append)

    assert "holds" in broken(Files(), tmp_path)


def test_an_undo_that_leaves_sources_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines would be taken for known that are in no file."""
    undo = State.undo

    def without_sources(self: State) -> None:
        rows = self._db.execute("SELECT key, value FROM sources").fetchall()
        undo(self)
        self._db.executemany("REPLACE INTO sources VALUES (?, ?)", rows)

    monkeypatch.setattr(State, "undo", without_sources)

    assert "sources are" in broken(Files(), tmp_path)


def test_upkeep_that_forgets_how_to_take_a_commit_back_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor that began before the commit would have its lines, too."""
    commit = PartitionFiles.commit

    def commit_and_settle(self: PartitionFiles, *args: Any) -> None:
        commit(self, *args)
        self._state.change({})

    monkeypatch.setattr(PartitionFiles, "commit", commit_and_settle)

    assert "cannot be taken back" in broken(Files(), tmp_path)


# Defects of journals.


class Unsynced(JournalSink):
    """Does not make durable what it commits."""

    def _sync(self) -> None:
        pass


class Untruncated(JournalSink):
    """Leaves what a dead process appended, and appends behind it."""

    def _truncate(self) -> None:
        self._end = self._path.stat().st_size


class Eager(JournalSink):
    """Commits what is written behind the mark, too."""

    def commit(
        self, commit: LocalCommit, mark: Lines, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """Commit all there is."""
        super().commit(commit, [*mark, *self._written], sources)


class Persistent(JournalSink):
    """Keeps what was written when the epoch is over."""

    def discard(self) -> None:
        """Forget to."""


class Repeating(JournalSink):
    """Commits the lines of a commit that found no room once more."""

    def commit(
        self, commit: LocalCommit, mark: Lines, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """Commit, and double what has to be tried again."""
        try:
            super().commit(commit, mark, sources)
        except SinkFull:
            mark += mark
            raise


class Remembering(JournalSink):
    """Never forgets a source."""

    def commit(
        self, commit: LocalCommit, mark: Lines, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """Commit what is known, not what is forgotten."""
        super().commit(commit, mark, {name: known for name, known in sources.items() if known})


class Halved(JournalSink):
    """Commits the position first and the lines after it."""

    def commit(
        self, commit: LocalCommit, mark: Lines, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """Append two records."""
        super().commit(commit, [], sources)
        self._append({"lines": mark})


class Successionless(JournalSink):
    """Takes the succession back with the commit."""

    def undo(self) -> None:
        """Drop all behind the commit."""
        super().undo()
        records = [each for each in read(self._path) if "succession" not in each]
        self._path.write_bytes(b"".join(map(framed, records)))
        self._load()


class Shared(JournalSink):
    """Lets two processes in."""

    def __init__(self, path: Path, faults: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("components.journal_sink.fcntl.flock", lambda *_: None)
            super().__init__(path, faults)


@pytest.mark.parametrize(
    ("sink", "found"),
    [
        (Unsynced, "last commit is"),
        (Untruncated, "last commit is"),
        (Eager, "holds"),
        (Persistent, "dirty_bytes is"),
        (Repeating, "holds"),
        (Remembering, "sources are"),
        (Halved, "holds"),
        (Successionless, "the succession is"),
        (Shared, "two have the partition open"),
    ],
)
def test_a_planted_defect_is_found(tmp_path: Path, sink: type[JournalSink], found: str) -> None:
    """Each breaks one promise, and the suite names it."""
    implementation = Journals()
    implementation.sink = sink

    assert found in broken(implementation, tmp_path)


def test_a_journal_that_is_listed_with_a_torn_record_is_found(tmp_path: Path) -> None:
    """A reader that shows what stands behind the last whole record."""

    class Torn(Journals):
        def listed(self, folder: Path) -> dict[SourceName, bytes]:
            lines = super().listed(folder)
            if self.leftover_bytes(folder):
                lines["h", "torn"] = os.urandom(2)
            return lines

    assert "the list holds" in broken(Torn(), tmp_path)
