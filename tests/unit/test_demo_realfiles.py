"""Files of this machine are checked byte for byte, though their lines carry no number."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_collected import collect
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.realfiles import RealFile, default_place, is_merge, line_diff, split_lines
from logpipeline_demo.verdict import Verdict

LINES = [b"line %d\n" % number for number in range(50)] + [b"same\n"] * 3 + [b"\n", b"\xff\x00\r\n"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "var" / "sys.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(LINES))
    return path


def verdict_of(tmp_path: Path, file: RealFile, *pieces: list[bytes]) -> Verdict:
    """Check *file* after each collector collected its piece."""
    for number, piece in enumerate(pieces):
        collect(tmp_path / "data", file.place, piece, collector=number)
    (tmp_path / "data").mkdir(exist_ok=True)
    return check(Expected(0, {}), [tmp_path / "data"], real_files=[file])


def test_a_file_that_arrived_is_clean(tmp_path: Path, path: Path) -> None:
    """The very bytes, counted by their lines."""
    verdict = verdict_of(tmp_path, RealFile.observe(path, host="here"), LINES)

    assert verdict.is_clean
    assert verdict.summary() == f"checked: {len(LINES)} lines, 0 lost, 0 twice, 0 out of order"
    assert verdict.real_files == 1


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda lines: lines.__delitem__(0), (1, 0, 0, 0)),
        (lambda lines: lines.__delitem__(20), (1, 0, 0, 0)),
        (lambda lines: lines.pop(), (1, 0, 0, 0)),
        (lambda lines: lines.insert(20, lines[20]), (0, 1, 0, 0)),
        (lambda lines: lines.insert(50, b"same\n"), (0, 1, 0, 0)),
        (lambda lines: lines.insert(20, lines.pop(21)), (0, 0, 1, 0)),
        (lambda lines: lines.insert(20, b"hello\n"), (0, 0, 0, 1)),
        (lambda lines: lines.__setitem__(20, lines[19]), (1, 1, 0, 0)),
        (lambda lines: lines.__setitem__(20, b"lime 20\n"), (1, 0, 0, 1)),
        (lambda lines: lines.clear(), (len(LINES), 0, 0, 0)),
    ],
    ids=[
        "prefix", "middle", "tail", "twice", "repeated line twice", "swap", "invented",
        "loss and duplicate", "changed byte", "all",
    ],
)  # fmt: skip
def test_what_is_planted_is_found(
    tmp_path: Path, path: Path, change: object, found: tuple[int, ...]
) -> None:
    """Lost, twice, out of order, invented: by the lines, where the bytes differ."""
    lines = list(LINES)
    assert callable(change)
    change(lines)
    verdict = verdict_of(tmp_path, RealFile.observe(path, host="here"), lines)

    assert (verdict.lost, verdict.twice, verdict.out_of_order, verdict.invented) == found
    assert not verdict.is_clean
    assert str(path) in verdict.explain()


def test_a_file_that_never_arrived_is_lost(tmp_path: Path, path: Path) -> None:
    """No collected file at all."""
    assert verdict_of(tmp_path, RealFile.observe(path, host="here")).lost == len(LINES)


@given(cuts=st.lists(st.integers(0, len(LINES)), max_size=5))
def test_a_hand_over_changes_nothing(cuts: list[int]) -> None:
    """Two collectors that took turns: their files together are the file."""
    pieces: list[list[bytes]] = [[], []]
    for number, (first, end) in enumerate(pairwise([0, *sorted(cuts), len(LINES)])):
        pieces[number % 2] += LINES[first:end]

    assert is_merge(LINES, [], pieces)
    assert line_diff(LINES, [], pieces).is_clean


def test_two_collectors_that_share_a_file_are_checked_together(tmp_path: Path, path: Path) -> None:
    """After a hand-over the file is what both have of it."""
    file = RealFile.observe(path, host="here")

    assert verdict_of(tmp_path, file, LINES[:10] + LINES[20:], LINES[10:20]).is_clean
    assert verdict_of(tmp_path, file, LINES[:10] + LINES[20:], LINES[10:19]).lost == 1
    assert verdict_of(tmp_path, file, LINES[:10] + LINES[20:], LINES[9:20]).twice == 1


def test_each_line_that_moved_is_counted() -> None:
    """A batch that comes late: its lines are out of order, the others are not."""
    diff = line_diff(LINES, [], [LINES[:10] + LINES[13:30] + LINES[10:13] + LINES[30:]])

    assert len(diff.out_of_order) == 3


@given(st.data())
def test_a_loss_in_a_hand_over_is_found(data: st.DataObject) -> None:
    """Whatever line is left out where two collectors share a file, it is one line lost."""
    cut, lost = (data.draw(st.integers(0, len(LINES) - 1)) for _ in range(2))
    lines = LINES[:lost] + LINES[lost + 1 :]
    diff = line_diff(LINES, [], [lines[:cut], lines[cut:]])

    assert [LINES[index] for index in diff.lost] == [LINES[lost]]
    assert not diff.twice
    assert not diff.invented


@given(st.binary(max_size=50))
def test_split_lines_loses_no_byte(data: bytes) -> None:
    """Lines end with a newline and with nothing else, and together they are what was split."""
    lines = split_lines(data)

    assert b"".join(lines) == data
    assert all(line.index(b"\n") == len(line) - 1 for line in lines[:-1])


def test_lines_that_came_later_may_be_there_or_not(tmp_path: Path, path: Path) -> None:
    """After the freeze the file grows: what is collected of that must be right, but need not be
    there. An unfinished line is not asked for.
    """
    file = RealFile.observe(path, host="here")
    with path.open("ab") as log:
        log.write(b"unfinished")
    file.freeze()
    with path.open("ab") as log:
        log.write(b" business\nlater\n")

    assert verdict_of(tmp_path, file, LINES).is_clean
    assert verdict_of(tmp_path, file, [*LINES, b"unfinished business\n"]).is_clean
    assert verdict_of(tmp_path, file, [*LINES, b"unfinished business\n", b"later\n"]).is_clean
    assert verdict_of(tmp_path, file, [*LINES, b"later\n"]).lost == 1
    assert verdict_of(tmp_path, file, LINES[:-1]).lost == 1
    assert verdict_of(tmp_path, file, [*LINES, b"never\n"]).invented == 1


def test_only_what_was_to_be_shipped_is_expected(tmp_path: Path, path: Path) -> None:
    """Rotated files before it are part of it; what stood there before the start is not."""
    older = path.with_name("sys.log.2.gz")
    older.write_bytes(gzip.compress(b"older\n"))
    whole = RealFile.observe(path, host="here", older=[older])
    late = RealFile.observe(path, host="here", start=len(b"".join(LINES[:10])))

    assert verdict_of(tmp_path, whole, [b"older\n", *LINES]).is_clean
    assert verdict_of(tmp_path, whole, LINES).lost == 1
    assert verdict_of(tmp_path, late, LINES[10:]).is_clean


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").rename(path)


def change_a_byte(path: Path) -> None:
    with path.open("r+b") as log:
        log.write(b"L")


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (replace, "replaced"),
        (lambda path: os.truncate(path, 10), "truncated"),
        (change_a_byte, "changed"),
        (Path.unlink, "no longer be read"),
    ],
    ids=["replaced", "truncated", "changed", "deleted"],
)
def test_a_file_that_did_more_than_grow_is_left_out_by_name(
    tmp_path: Path, path: Path, happens: object, reason: str
) -> None:
    """Nobody knows what stood in it: it is listed with the reason, and not counted as checked."""
    file = RealFile.observe(path, host="here")
    assert callable(happens)
    happens(path)
    verdict = verdict_of(tmp_path, file, LINES)

    [left_out] = verdict.left_out
    assert left_out.path == path
    assert reason in left_out.reason
    assert (verdict.real_files, verdict.lines) == (0, 0)


def test_a_name_is_encoded_as_collectors_do() -> None:
    """The default path template keeps a file's folders and encodes what could leave them."""
    assert default_place("h", Path("/var/log/my app/.x@1")) == "h/_files/var/log/my%20app/%2Ex%401"
