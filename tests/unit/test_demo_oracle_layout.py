"""The oracle reads whatever collectors leave: rotated, compressed, and handed over between them."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_collected import CONTAINER, PLACES, PLAIN, collect, lines_of, run_of
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check

LINES = 400
SUFFIXES = ("", ".gz", ".zst")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    return run_of(tmp_path_factory.mktemp("run"), lines=LINES)


@pytest.fixture
def data(tmp_path: Path, expected: Expected) -> Path:
    """A folder that holds the plain file's lines, so that only the container's are missing."""
    collect(tmp_path, PLACES[PLAIN.key], lines_of(expected, PLAIN.key))
    return tmp_path


def spread(data: Path, expected: Expected, cuts: list[int], owners: list[int]) -> None:
    """Cut both sources at *cuts*; piece i is written by collector *owners*[i], which rotates and
    compresses after each.
    """
    ends = [0, *sorted(cuts), LINES]
    for key in (CONTAINER.key, PLAIN.key):
        lines = lines_of(expected, key)
        for number, (first, end) in enumerate(pairwise(ends)):
            packing = SUFFIXES[number % len(SUFFIXES)]
            suffix = f".20261121-1000{number:02}.{number:06}{packing}"
            owner = owners[number]
            collect(data, PLACES[key], lines[first:end], collector=owner, suffix=suffix)


@given(
    cuts=st.lists(st.integers(0, LINES), min_size=1, max_size=6),
    owners=st.lists(st.integers(0, 2), min_size=7, max_size=7),
)
def test_rotation_and_hand_over_change_nothing(
    expected: Expected, cuts: list[int], owners: list[int]
) -> None:
    """However the lines are cut into files, and these spread over collectors: it is clean."""
    with tempfile.TemporaryDirectory() as folder:
        spread(Path(folder), expected, cuts, owners)
        verdict = check(expected, [Path(folder)])

        assert verdict.explain() == ""
        assert verdict.is_clean


@pytest.mark.parametrize("start", range(0, 149, 7))
def test_empty_lines_at_a_hand_over_are_told_apart(
    data: Path, expected: Expected, start: int
) -> None:
    """One collector stops before an empty line and goes on with another: only the lines of the
    second collector tell which is which.
    """
    source, lines = expected.sources[PLAIN.key], lines_of(expected, PLAIN.key)
    blanks = [seq for seq in range(start + 1, LINES) if source.is_blank(seq)]
    first, last = blanks[0], blanks[-1]
    assert start < first < last
    collect(data, PLACES[CONTAINER.key], lines_of(expected, CONTAINER.key))
    collect(data, PLACES[PLAIN.key], lines[start:first] + lines[last:])
    collect(data, PLACES[PLAIN.key], lines[:start] + lines[first:last], collector=1)

    assert check(expected, [data]).explain() == ""


def test_a_copy_in_another_collectors_folder_is_found(data: Path, expected: Expected) -> None:
    """A hand-over that repeats lines: each folder alone is fine, together they are not."""
    lines = lines_of(expected, CONTAINER.key)
    collect(data, PLACES[CONTAINER.key], lines[:250], collector=0)
    collect(data, PLACES[CONTAINER.key], lines[200:], collector=1)
    verdict = check(expected, [data])

    assert (verdict.twice, verdict.lost, verdict.out_of_order) == (50, 0, 0)


def test_a_gap_between_two_collectors_is_found(data: Path, expected: Expected) -> None:
    """A hand-over that skips lines."""
    lines = lines_of(expected, CONTAINER.key)
    collect(data, PLACES[CONTAINER.key], lines[:200], collector=0)
    collect(data, PLACES[CONTAINER.key], lines[250:], collector=1)

    assert check(expected, [data]).source(CONTAINER.key).lost_middle == 50


def test_order_holds_across_the_files_of_a_folder(data: Path, expected: Expected) -> None:
    """Rotated files come in the order of their names, before the active one."""
    lines = lines_of(expected, CONTAINER.key)
    place = PLACES[CONTAINER.key]
    collect(data, place, lines[150:], suffix=".20261121-100000.000001")
    collect(data, place, lines[:150])
    verdict = check(expected, [data])

    assert (verdict.out_of_order, verdict.lost, verdict.twice) == (150, 0, 0)


def test_a_line_may_go_on_in_the_next_file(data: Path, expected: Expected) -> None:
    """A chain is its bytes, wherever they are cut."""
    content = b"".join(lines_of(expected, CONTAINER.key))
    place = PLACES[CONTAINER.key]
    collect(data, place, [content[:10_001]], suffix=".20261121-100000.000001.gz")
    collect(data, place, [content[10_001:]])

    assert check(expected, [data]).is_clean


def test_the_collectors_folders_may_be_named_one_by_one(data: Path, expected: Expected) -> None:
    """A folder of collectors, the collectors, or their logs: the same is found."""
    lines = lines_of(expected, CONTAINER.key)
    collect(data, PLACES[CONTAINER.key], lines[:250], collector=0)
    collect(data, PLACES[CONTAINER.key], lines[250:], collector=1)
    collectors = [data / "collector-0", data / "collector-1"]

    assert check(expected, collectors).is_clean
    assert check(expected, [collector / "logs" for collector in collectors]).is_clean
    assert check(expected, collectors[:1]).lost == LINES - 250


def test_containers_lines_are_checked_in_their_own_format(data: Path, expected: Expected) -> None:
    """With output `cri`, times and fragments are expected as the runtime wrote them."""
    source = expected.sources[CONTAINER.key]
    written = source.maker.written(0, LINES, source.times[0])
    collect(data, PLACES[CONTAINER.key], [written])
    verdict = check(expected, [data], output="cri")
    assert verdict.explain() == ""
    assert verdict.is_clean
    at = written.index(b"Z stdout F")
    collect(data, PLACES[CONTAINER.key], [written[: at - 1], b"x", written[at:]])

    assert check(expected, [data], output="cri").corrupt == 1
