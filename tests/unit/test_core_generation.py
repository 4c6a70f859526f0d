"""A generation's name comes from its content, so that renaming and compressing do not change it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from logpipeline.generation import HEAD_BYTES_MAX, generation_of, head_of


def test_a_file_and_its_gzip_have_the_same_name(tmp_path: Path) -> None:
    """X and X.gz are one generation."""
    data = b"first line\nsecond line\n"
    (tmp_path / "x.gz").write_bytes(gzip.compress(data))

    with gzip.open(tmp_path / "x.gz") as file:
        head = head_of(file.read(HEAD_BYTES_MAX))
    assert head == head_of(data) == b"first line\n"


def test_a_growing_first_line_has_no_name_yet() -> None:
    """Its name would change with the next write."""
    assert head_of(b"half a li") is None
    assert head_of(b"half a li", closed=True) == b"half a li"
    assert head_of(b"", closed=True) is None


def test_a_very_long_first_line_is_named_by_its_beginning() -> None:
    """The name stays when the line's end comes at last."""
    start = b"x" * HEAD_BYTES_MAX

    assert head_of(start) == head_of(start + b"yyy") == head_of(start + b"yyy\n") == start


@pytest.mark.parametrize(
    ("head", "distinction", "name"),
    [(b"first line\n", "", "eb2fdbcf03be2da0"), (b"first line\n", "8:17", "a05a1088bf649e82")],
)
def test_names_are_these(head: bytes, distinction: str, name: str) -> None:
    """Vectors: 8 bytes of BLAKE2b, keyed by device and inode where two heads are the same."""
    assert generation_of(head, distinction=distinction) == name
