"""Where batches end, and how gzipped files are unpacked."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline import cri
from logpipeline_shipper.files.cutting import Cut, cut, times_of
from logpipeline_shipper.files.reading import GzipReader

TIME = b"2026-11-21T10:00:00.123456789Z"


def line(stream: str, tag: str, text: str) -> bytes:
    return TIME + f" {stream} {tag} {text}\n".encode()


def test_an_unfinished_line_waits() -> None:
    """What has no newline yet is not sent while the file may grow."""
    assert cut(b"a\nb", "plain", line_bytes_max=100, closed=False) == Cut(2)
    assert cut(b"b", "plain", line_bytes_max=100, closed=False) == Cut(0)
    assert cut(b"b", "plain", line_bytes_max=100, closed=True) == Cut(1)


def test_a_long_plain_line_is_cut_into_pieces() -> None:
    """A piece has exactly the length of the limit, and says that the line goes on."""
    piece = cut(b"x" * 150, "plain", line_bytes_max=100, closed=False)

    assert piece == Cut(100, inside_line=True, forced=True)


def test_a_batch_never_ends_inside_a_run_of_fragments() -> None:
    """It ends before the run, of whichever stream."""
    whole = line("stdout", "F", "one")
    data = whole + line("stderr", "P", "two") + line("stdout", "F", "three")

    assert cut(data, "cri", line_bytes_max=10_000, closed=False) == Cut(len(whole))


def test_a_long_run_is_cut_between_two_fragments() -> None:
    """A run over the limit ends with a whole fragment, and says that it goes on."""
    fragment = line("stdout", "P", "x" * 50)
    found = cut(fragment * 5, "cri", line_bytes_max=3 * len(fragment) + 7, closed=False)

    assert found == Cut(3 * len(fragment), inside_line=True, forced=True)


def test_the_end_of_a_file_ends_a_run() -> None:
    """Fragments that were never closed are sent when their file is complete."""
    run = line("stdout", "P", "x")

    assert cut(run, "cri", line_bytes_max=1000, closed=True) == Cut(len(run), inside_line=True)


@given(
    st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.sampled_from("PF"))),
    st.integers(60, 400),
)
def test_cutting_a_whole_file_loses_nothing(kinds: list[tuple[str, str]], limit: int) -> None:
    """The cuts are adjoining, each within the limit or at a line's end, and come to an end."""
    data = b"".join(line(stream, tag, str(number)) for number, (stream, tag) in enumerate(kinds))
    offset = 0
    while offset < len(data):
        window = data[offset : offset + limit]
        is_end = offset + len(window) == len(data)
        found = cut(window, "cri", line_bytes_max=limit, closed=is_end)
        assert 0 < found.length <= limit
        if not found.inside_line:
            assert all(whole.whole for whole in cri.join(window[: found.length]))
        offset += found.length

    assert offset == len(data)


def test_the_times_are_those_of_the_first_and_last_line() -> None:
    """Lines without a time have none, and plain files neither."""
    later = TIME.replace(b"10:00:00", b"10:00:01")
    data = TIME + b" stdout F a\n" + later + b" stdout F b\n"
    first, last = times_of(data, "cri")

    assert last - first == 1_000_000_000
    assert times_of(b"nonsense\n", "cri") == (0, 0)
    assert times_of(data, "plain") == (0, 0)


@pytest.fixture
def content() -> bytes:
    return b"".join(b"%07d\n" % number for number in range(50_000))


def reader_of(path: Path) -> Iterator[GzipReader]:
    reader = GzipReader(os.open(path, os.O_RDONLY))
    try:
        yield reader
    finally:
        reader.close()


def test_a_gzipped_file_is_read_at_any_offset(tmp_path: Path, content: bytes) -> None:
    """Forwards, backwards, over the end, and across the members of a file."""
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(content[:100_000], 1) + gzip.compress(content[100_000:], 1))
    for reader in reader_of(path):
        for offset, size in [(0, 10), (99_990, 20), (300_000, 4096), (8, 8), (399_990, 100)]:
            assert reader.read(offset, size) == content[offset : offset + size]
        assert reader.read(500_000, 1) == b""
        assert reader.broken == ""


@pytest.mark.parametrize(
    ("damage", "reason"), [("cut", "gzip-cut-short"), ("flip", "gzip-damaged")]
)
def test_a_broken_gzipped_file_is_read_up_to_the_damage(
    tmp_path: Path, content: bytes, damage: str, reason: str
) -> None:
    """What can be unpacked is returned, and the reader says what is wrong with the rest."""
    packed = bytearray(gzip.compress(content, 1))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[-8] ^= 1  # of the checksum
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    for reader in reader_of(path):
        data = reader.read(0, len(content))
        assert reader.broken == reason
        assert data == content[: len(data)]
        assert len(data) > 10_000


def test_unpacking_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    """What is skipped is not kept."""
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"\0" * 30_000_000 + b"end\n", 1))
    for reader in reader_of(path):
        assert reader.read(30_000_000, 100) == b"end\n"
        assert len(reader._buffer) < 1_000_000
