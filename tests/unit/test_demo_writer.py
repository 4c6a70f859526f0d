"""A source's files hold what the ledger says, whatever is done to them."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_collected import CONTAINER, PLACES, PLAIN, SEED, collect
from logpipeline import cri
from logpipeline_demo.expected import Expected
from logpipeline_demo.ledger import Ledger
from logpipeline_demo.oracle import check
from logpipeline_demo.rotation import rotated_files
from logpipeline_demo.sources import LogSource
from logpipeline_demo.writer import LogWriter

SOURCES = [PLAIN, CONTAINER]


@dataclass
class Desk:
    """A writer, its ledger, and what can be read of its files."""

    folder: Path
    ledger: Ledger
    writer: LogWriter

    def expected(self) -> Expected:
        self.ledger.flush()
        return Expected.read(self.folder / "ledger")

    def files(self) -> list[Path]:
        live = [self.writer.path] if self.writer.path.exists() else []
        return rotated_files(self.writer.path) + live

    def content(self) -> bytes:
        """Return the bytes of all files, oldest first."""
        opened = (gzip.open if path.suffix == ".gz" else Path.open for path in self.files())
        parts = []
        for path, opener in zip(self.files(), opened, strict=True):
            with opener(path, "rb") as file:
                parts.append(file.read())
        return b"".join(parts)

    def names(self) -> list[str]:
        return [path.name for path in self.files()]


def desk_of(folder: Path, source: LogSource, *, files_max: int | None = None) -> Desk:
    ledger = Ledger(folder / "ledger", seed=SEED)
    return Desk(folder, ledger, LogWriter(source, folder / "root", ledger, files_max=files_max))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    desks = []

    def make(source: LogSource, *, files_max: int | None = None) -> Desk:
        desks.append(desk_of(tmp_path, source, files_max=files_max))
        return desks[-1]

    yield make
    for made in desks:
        made.writer.close()
        made.ledger.close()


def collected(folder: Path, source: LogSource, content: bytes) -> Path:
    """Collect *content* as a faithful pipeline would, and return the folder of collectors."""
    if source.kind == "cri":
        content = b"".join(line.text + b"\n" for line in cri.join(content))
    collect(folder / "data", PLACES[source.key], [content])
    return folder / "data"


def act(writer: LogWriter, action: str, size: int) -> None:
    """Do *action* to *writer*, where it can be done."""
    text_bytes = len(writer.maker.line(writer.next_seq))
    block = writer.maker.written(writer.next_seq, 1, 0)
    match action:
        case "write":
            writer.write(size)
        case "torn" if len(block) > 1:
            writer.write_torn(1, 1 + size % (len(block) - 1))
        case "partial" if text_bytes > 1:
            writer.write_partial(1 + size % (text_bytes - 1))
        case "long":
            writer.write_long(size * 1000)
        case "finish" | "gzip":
            getattr(writer, action)()
        case "rotate" if writer.source.kind == "cri":
            writer.rotate_kubelet(lines_between=size % 3)
        case "rotate":
            writer.rotate_numbered(lines_between=size % 3)


actions = st.tuples(
    st.sampled_from(["write", "torn", "partial", "long", "finish", "gzip", "rotate"]),
    st.integers(1, 60),
)


@given(source=st.sampled_from(SOURCES), done=st.lists(actions, max_size=25))
def test_the_files_hold_exactly_what_the_ledger_expects(
    source: LogSource, done: list[tuple[str, int]]
) -> None:
    """Lines, torn lines, fragments, rotations in any order: the oracle is content with the files
    themselves.
    """
    with tempfile.TemporaryDirectory() as name:
        desk = desk_of(Path(name), source)
        for action, size in done:
            act(desk.writer, action, size)
        desk.writer.close()
        desk.ledger.close()
        expected = Expected.read(desk.folder / "ledger")
        verdict = check(expected, [collected(Path(name), source, desk.content())])

        assert verdict.explain() == ""
        assert verdict.lines == desk.writer.next_seq


def test_kubelet_keeps_one_rotated_file_uncompressed(desk: Callable[..., Desk]) -> None:
    """Older ones are compressed and surplus ones removed, before the live file is renamed."""
    kept = desk(CONTAINER, files_max=5)
    for _ in range(8):
        kept.writer.write(10)
        kept.writer.rotate_kubelet()

    names = kept.names()
    assert [name.endswith(".gz") for name in names] == [True, True, True, False, False]
    assert names[-1] == "0.log"
    assert all(name.startswith("0.log.") for name in names[:-1])
    assert kept.writer.rotations == kept.expected().rotations == 8


def test_logrotate_moves_numbers_up(desk: Callable[..., Desk]) -> None:
    """`.1` stays as it is until the next rotation; older ones are compressed, the last removed."""
    kept = desk(PLAIN, files_max=5)
    for _ in range(8):
        kept.writer.write(10)
        kept.writer.rotate_numbered()

    assert kept.names() == [
        "app.log.4.gz",
        "app.log.3.gz",
        "app.log.2.gz",
        "app.log.1",
        "app.log",
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_removed_lines_are_known(
    desk: Callable[..., Desk], source: LogSource, tmp_path: Path
) -> None:
    """What stood in files that rotation removed is lost, and counted as such: nothing else is."""
    kept = desk(source, files_max=3)
    for _ in range(6):
        act(kept.writer, "write", 50)
        act(kept.writer, "rotate", 2)
    expected = kept.expected()
    [result, _] = check(expected, [collected(tmp_path, source, kept.content())]).sources

    assert result.lost_prefix == result.lost == result.lost_removed > 0
    assert len(expected.sources[source.key].removed) == result.lost


def test_the_program_writes_on_into_the_renamed_file(desk: Callable[..., Desk]) -> None:
    """Between rename and reopen the path does not exist, and lines still come."""
    kept = desk(CONTAINER)
    kept.writer.write(3)
    kept.writer.rename_kubelet()
    assert not kept.writer.path.exists()
    kept.writer.write(4)
    kept.writer.reopen()
    kept.writer.write(5)

    rotated, live = kept.files()
    assert rotated.read_bytes() + live.read_bytes() == kept.content()
    assert live.read_bytes().count(b"node-a shop") == 5


def test_copytruncate_empties_the_file_under_its_readers(desk: Callable[..., Desk]) -> None:
    """The copy has all the lines, the file begins again, and the ledger says which it had."""
    kept = desk(PLAIN)
    kept.writer.write(30)
    before = kept.writer.path.stat()
    kept.writer.copytruncate()
    after = kept.writer.path.stat()
    kept.writer.write(5)

    assert (after.st_ino, after.st_size) == (before.st_ino, 0)
    assert kept.names() == ["app.log.1", "app.log"]
    assert list(kept.expected().sources[PLAIN.key].removed) == [(0, 30)]


def test_a_deleted_file_swallows_lines_until_it_is_recreated(desk: Callable[..., Desk]) -> None:
    """What a program writes into a file without a name counts as removed with it."""
    kept = desk(PLAIN)
    kept.writer.write(10)
    kept.writer.delete()
    kept.writer.write(10)
    kept.writer.recreate()
    kept.writer.write(10)

    source = kept.expected().sources[PLAIN.key]
    assert list(source.removed) == [(0, 20)]
    assert kept.content() == source.maker.lines(20, 10)


def test_rotated_files_can_be_taken_away(desk: Callable[..., Desk]) -> None:
    """All files but the live one are gone, and the ledger says which lines went with them."""
    kept = desk(CONTAINER)
    for _ in range(3):
        kept.writer.write(10)
        kept.writer.rotate_kubelet()
    kept.writer.write(10)
    kept.writer.delete_rotated()

    assert kept.names() == ["0.log"]
    assert list(kept.expected().sources[CONTAINER.key].removed) == [(0, 30)]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_an_open_line_is_finished_before_anything_else(
    desk: Callable[..., Desk], source: LogSource
) -> None:
    """What was begun is open, and not written, until the next call goes on with it."""
    kept = desk(source)
    kept.writer.write_partial(10)
    begun, open_then = kept.expected().lines, kept.writer.has_open_line
    kept.writer.write(1)

    assert (begun, open_then) == (0, True)
    assert (kept.expected().lines, kept.writer.has_open_line) == (2, False)


@pytest.mark.parametrize("ending", [b"", b"\n"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_a_line_that_is_never_finished_is_expected_as_far_as_it_got(
    desk: Callable[..., Desk], source: LogSource, ending: bytes, tmp_path: Path
) -> None:
    """A program died in a line: its part must arrive, with a newline or glued to the next line."""
    kept = desk(source)
    kept.writer.write(5)
    kept.writer.write_partial(len(kept.writer.maker.line(5)) - 3)
    kept.writer.abandon()
    kept.writer.rotate_kubelet()
    kept.writer.write(5)
    expected = kept.expected()
    wanted = expected.sources[source.key]
    before, after = wanted.maker.lines(0, 5), wanted.maker.lines(6, 5)

    collect(tmp_path / "data", PLACES[source.key], [before, wanted.line(5), ending, after])
    assert check(expected, [tmp_path / "data"]).explain() == ""
    collect(tmp_path / "data", PLACES[source.key], [before, after])
    assert check(expected, [tmp_path / "data"]).lost == 1
    collect(tmp_path / "data", PLACES[source.key], [wanted.maker.lines(0, 11)])
    assert not check(expected, [tmp_path / "data"]).is_clean, "the rest was never written"


def test_a_line_too_short_to_recognise_is_not_abandoned(desk: Callable[..., Desk]) -> None:
    """Nobody could tell whose it was."""
    kept = desk(PLAIN)
    kept.writer.write_partial(4)

    with pytest.raises(ValueError, match="beyond its checksum"):
        kept.writer.abandon()


def test_a_long_line_is_checked_like_any_other(desk: Callable[..., Desk], tmp_path: Path) -> None:
    """Larger than any buffer of the oracle, with a byte changed near its end."""
    kept = desk(PLAIN)
    kept.writer.write(3)
    kept.writer.write_long(5_000_000)
    kept.writer.write(3)
    content = bytearray(kept.content())
    assert check(kept.expected(), [collected(tmp_path, PLAIN, bytes(content))]).is_clean
    content[5_000_000] ^= 1

    assert check(kept.expected(), [collected(tmp_path, PLAIN, bytes(content))]).corrupt == 1
