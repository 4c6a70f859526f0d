"""Reading what is committed while it is rotated, packed and removed: each line once, in order."""

from __future__ import annotations

import gzip
import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import zstandard

from logpipeline.records import StreamPosition
from logpipeline_cli import committed
from logpipeline_cli.commands import files
from logpipeline_cli.committed import Reading, content_of, pieces_of
from logpipeline_cli.errors import EXIT_FAILED, CliError
from logpipeline_collector.files.committed import StoredFolder, read_folder
from logpipeline_collector.files.state import FileRow, Stage, State
from logpipeline_collector.sink import LocalCommit

HOST = "web1"
UNCOMMITTED = b"never committed\n"


class Collector:
    """A collector's folder with one chain of files, made by the collector's own state; *clock*
    says when a file begins.
    """

    def __init__(
        self, folder: Path, name: str = "web1/app.log", clock: Iterator[int] | None = None
    ) -> None:
        self.folder = folder
        self.name = name
        self._clock = clock or count(1)
        self.lines = 0
        (folder / "state" / "main").mkdir(parents=True, exist_ok=True)
        self.active.parent.mkdir(parents=True, exist_ok=True)
        self._state = State(folder / "state" / "main" / "p0.sqlite")
        self._commits = 0
        self._rotations = 0

    @property
    def active(self) -> Path:
        """The file that is written now."""
        return self.folder / "logs" / self.name

    def write(self, lines: int) -> None:
        """Commit so many more lines, with bytes behind them that are not committed."""
        number, row = self._active_row()
        text = b"".join(b"line %06d\n" % n for n in range(self.lines, self.lines + lines))
        with self.active.open("r+b" if row.length else "wb") as file:
            file.seek(row.length)
            file.write(text + UNCOMMITTED)
        self.lines += lines
        self._commits += 1
        position = StreamPosition("monday", self._commits, self._commits)
        commit = LocalCommit(self._commits, 1, position, 0, None)
        self._state.commit(commit, {number: row._replace(length=row.length + len(text))}, {})

    def rotate(self) -> None:
        """Set the active file aside, and begin another."""
        number, row = self._active_row()
        with self.active.open("r+b") as file:
            file.truncate(row.length)
        self._rotations += 1
        target = f"{self.name}.20261121-100000.{self._rotations:06d}"
        row = row._replace(rotated_ns=self._rotations)
        self._state.change({number: row._replace(moving_to=target)})
        self.active.rename(self.folder / "logs" / target)
        self._state.change({number: row._replace(path=target, stage=Stage.ROTATED)})
        self.write(1)

    def pack(self, suffix: str = ".zst") -> None:
        """Pack the oldest file that is not packed."""
        number, row = min(self._rows(Stage.ROTATED), key=lambda item: item[1].path)
        path = self.folder / "logs" / row.path
        raw, target = path.read_bytes(), row.path + suffix
        data = zstandard.compress(raw) if suffix == ".zst" else gzip.compress(raw)
        self._state.change({number: row._replace(packing_to=target)})
        path.with_name(path.name + suffix).write_bytes(data)
        path.unlink()
        row = row._replace(path=target, stage=Stage.PACKED, size=len(data))
        self._state.change({number: row})

    def remove_oldest(self) -> None:
        """Remove the oldest file, as retention does."""
        rows = self._rows(Stage.ROTATED, Stage.PACKED)
        number, row = min(rows, key=lambda item: item[1].path)
        self._state.change({}, gone=[number])
        (self.folder / "logs" / row.path).unlink()

    def _active_row(self) -> tuple[int, FileRow]:
        new = max(self._state.files(), default=0) + 1
        now_ns = next(self._clock)
        begun = FileRow(self.name, self.name, HOST, Stage.ACTIVE, begun_ns=now_ns, length=0)
        active = (item for item in self._rows(Stage.ACTIVE) if item[1].path == self.name)
        return next(active, (new, begun))

    def _rows(self, *stages: Stage) -> list[tuple[int, FileRow]]:
        return [item for item in self._state.files().items() if item[1].stage in stages]


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    """A collector with a packed file, a rotated one and an active one."""
    made = Collector(tmp_path / "collector-0")
    made.write(500)
    made.rotate()
    made.pack()
    made.write(500)
    made.rotate()
    made.write(500)
    return made


def read(*folders: Path, glob: str | None = None) -> bytes:
    """Return what is read of the host."""
    return b"".join(chunk for file in Reading(folders, HOST, glob).files() for chunk in file)


def lines(count: int) -> bytes:
    """Return the first *count* lines."""
    return b"".join(b"line %06d\n" % n for n in range(count))


def test_files_are_read_oldest_first_and_only_what_is_committed(collector: Collector) -> None:
    """Packed, rotated and active files are one text, without the bytes behind the last commit."""
    assert read(collector.folder) == lines(collector.lines)


def test_gzip_is_unpacked_too(collector: Collector) -> None:
    """Whatever a collector packs with, its lines can be read."""
    collector.pack(".gz")

    assert read(collector.folder) == lines(collector.lines)


def rotate_and_pack(collector: Collector) -> None:
    """Rotate, and pack what was rotated before."""
    collector.rotate()
    collector.pack()


ACTIONS: dict[str, Callable[[Collector], None]] = {
    "rotate": Collector.rotate,
    "pack": Collector.pack,
    "rotate and pack": rotate_and_pack,
    "write": lambda collector: collector.write(100),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("look", [0, 1])
def test_no_line_is_missed_or_doubled_by_what_happens_between_looks(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, action: str, look: int
) -> None:
    """After each look at the list the collector may go on, and the text stays whole."""
    before = collector.lines
    looks = 0

    def look_and_go_on(folder: Path, group: str | None) -> StoredFolder:
        nonlocal looks
        found = read_folder(folder, group)
        if looks == look:
            ACTIONS[action](collector)
        looks += 1
        return found

    monkeypatch.setattr("logpipeline_cli.committed.read_folder", look_and_go_on)
    text = read(collector.folder)

    count = text.count(b"\n")
    assert text == lines(count)
    assert before <= count <= collector.lines


@pytest.mark.parametrize("action", ACTIONS)
def test_no_line_is_missed_or_doubled_while_it_is_read(collector: Collector, action: str) -> None:
    """Between two files the collector may go on, and the text stays what it was."""
    before = collector.lines
    text = b""
    for number, file in enumerate(Reading([collector.folder], HOST, None).files()):
        text += b"".join(file)
        if number == 0:
            ACTIONS[action](collector)

    assert text == lines(before)


def test_what_retention_removed_meanwhile_is_named(collector: Collector) -> None:
    """A file that is gone before it could be read is no silent gap."""
    reading = Reading([collector.folder], HOST, None)
    contents = reading.files()
    first = b"".join(next(contents))
    collector.pack()
    collector.remove_oldest()
    collector.remove_oldest()
    list(contents)

    assert first == lines(500)
    assert [name for name, _ in reading.lost] == ["web1/app.log.20261121-100000.000002"]


def halve(path: Path) -> int:
    """Cut a file to half of its bytes, and return how many are gone."""
    size = path.stat().st_size
    os.truncate(path, size // 2)
    return size - size // 2


def rotated(collector: Collector, suffix: str) -> Path:
    """The only file of the collector with such a name."""
    [path] = (collector.folder / "logs").rglob(f"*.2026*{suffix}")
    return path


DAMAGES: dict[str, Callable[[Collector], tuple[Path, int]]] = {
    "active file gone": lambda c: (c.active, gone(c.active)),
    "active file cut": lambda c: (c.active, halve(c.active) - len(UNCOMMITTED)),
    "rotated file cut": lambda c: (rotated(c, "2"), halve(rotated(c, "2"))),
    "packed file cut": lambda c: (rotated(c, ".zst"), pack_again(rotated(c, ".zst"))),
}


def gone(path: Path) -> int:
    """Remove an active file, and return how many committed bytes it held."""
    size = path.stat().st_size
    path.unlink()
    return size - len(UNCOMMITTED)


def pack_again(path: Path) -> int:
    """Have a packed file hold half of its text, and return how many bytes are gone."""
    text = zstandard.decompress(path.read_bytes())
    path.write_bytes(zstandard.compress(text[: len(text) // 2]))
    return len(text) - len(text) // 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_there_is_named_whatever_file_it_was_in(
    collector: Collector, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how much it is; what is there of it, and the other files, are printed."""
    path, missing = DAMAGES[damage](collector)
    name = str(path.relative_to(collector.folder / "logs"))
    reading = Reading([collector.folder], HOST, None)
    text = b"".join(chunk for file in reading.files() for chunk in file)

    args = Namespace(host=HOST, path=None, grep=None, raw=True, action="cat")
    assert files._print_content([collector.folder], args) == EXIT_FAILED

    assert reading.lost == [(name, missing)]
    assert len(text) == len(lines(collector.lines)) - missing
    assert f"{missing} bytes of {name}" in capsys.readouterr().err


def test_a_file_that_is_gone_and_held_nothing_is_not_missed(collector: Collector) -> None:
    """Nothing was committed to it."""
    Collector(collector.folder, "web1/empty.log").write(0)
    (collector.folder / "logs" / "web1" / "empty.log").unlink()
    reading = Reading([collector.folder], HOST, None)
    list(map(list, reading.files()))

    assert reading.lost == []


def test_a_chain_that_moved_between_collectors_is_read_by_age(tmp_path: Path) -> None:
    """Away, and back, where the first one has begun another file: in order all the same."""
    clock = count(1)
    both = [Collector(tmp_path / f"collector-{number}", clock=clock) for number in (1, 0)]
    for number in range(4):
        here, former = both[number % 2], both[(number + 1) % 2]
        here.lines = former.lines
        if number > 1:
            here.rotate()
        here.write(10)

    assert read(*(collector.folder for collector in both)) == lines(both[1].lines)


def test_many_chains_of_a_host_are_each_read_once(tmp_path: Path) -> None:
    """More files than are opened at once are all read."""
    folder = tmp_path / "collector-0"
    for number in range(2 * committed.CHAINS_AT_ONCE + 3):
        Collector(folder, f"web1/{number:03d}.log").write(1)

    assert read(folder) == lines(1) * (2 * committed.CHAINS_AT_ONCE + 3)
    assert read(folder, glob="*/00[12].log") == lines(1) * 2


def damaged_gzip() -> bytes:
    """A good beginning, and no gzip's data behind it."""
    packed = bytearray(gzip.compress(lines(10_000)))
    packed[20:40] = b"\xff" * 20
    return bytes(packed)


def test_a_damaged_state_or_file_is_told(collector: Collector) -> None:
    """Damage ends with a message, never with a traceback or half a text passed for the whole."""
    packed = next((collector.folder / "logs" / "web1").glob("*.zst"))
    packed.write_bytes(b"\0" * 100)
    with pytest.raises(CliError, match="damaged"):
        read(collector.folder)

    gzipped = packed.with_suffix(".gz")
    gzipped.write_bytes(damaged_gzip())
    with gzipped.open("rb") as file, pytest.raises(CliError, match=f"{gzipped.name} is damaged"):
        list(content_of(file, 100))

    (collector.folder / "state" / "main" / "p1.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(CliError, match="cannot be read"):
        pieces_of([collector.folder])
