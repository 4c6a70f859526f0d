"""Full and old files are set aside, compressed and removed, and no line is lost by it."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
import zstandard

from archiving import PLACE, Writer, contents, opened
from logpipeline_collector.archive.reading import committed_files


def rotated(folder: Path) -> list[Path]:
    """Return the rotated files, the oldest first."""
    parent = (folder / "logs" / PLACE).parent
    return sorted(path for path in parent.iterdir() if path.name != Path(PLACE).name)


def test_a_full_file_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    """In order by their names."""
    writer = Writer(opened(tmp_path, rotate_bytes=4))
    for text in (b"one\n", b"two\n", b"three\n"):
        writer.take(text)
        writer.commit()
        writer.archive.maintain(time.time())
    writer.take(b"four\n")
    writer.commit()

    assert b"".join(path.read_bytes() for path in rotated(tmp_path)) == b"one\ntwo\nthree\n"
    assert contents(tmp_path) == b"four\n"


def test_an_old_file_is_set_aside(tmp_path: Path) -> None:
    """Whatever its size."""
    writer = Writer(opened(tmp_path, rotate_age_s=60))
    writer.take(b"one\n")
    writer.commit()
    writer.archive.maintain(time.time() + 30)
    assert rotated(tmp_path) == []
    writer.archive.maintain(time.time() + 90)
    assert len(rotated(tmp_path)) == 1


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_only_what_the_group_knows_is_set_aside(tmp_path: Path, is_confirmed: bool) -> None:
    """What may have to be taken back stays where it is."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    writer.take(b"one\n")
    writer.commit(is_confirmed=is_confirmed)
    writer.archive.maintain(time.time())

    assert bool(rotated(tmp_path)) == is_confirmed


def test_a_file_is_not_set_aside_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """The rest of the line belongs to it."""
    writer = Writer(opened(tmp_path, rotate_bytes=1))
    writer.take(b"half a ")
    writer.commit()
    writer.archive.maintain(time.time())
    assert rotated(tmp_path) == []
    writer.take(b"line\n", starts_inside_line=True)
    writer.commit()
    writer.archive.maintain(time.time())
    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"half a line\n"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_rotated_files_are_compressed(tmp_path: Path, compression: str) -> None:
    """And can be read by the usual tools."""
    writer = Writer(opened(tmp_path, rotate_bytes=1, compression=compression))
    writer.take(b"one\n" * 1000)
    writer.commit()
    writer.archive.maintain(time.time())
    (path,) = rotated(tmp_path)
    raw = path.read_bytes()
    data = (
        gzip.decompress(raw)
        if compression == "gzip"
        else zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    )

    assert data == b"one\n" * 1000
    assert path.suffix == {"gzip": ".gz", "zstd": ".zst"}[compression]


def test_old_files_are_removed_by_age_and_by_size_but_never_the_active_one(tmp_path: Path) -> None:
    """The oldest first."""
    writer = Writer(opened(tmp_path, rotate_bytes=4, retention_bytes=9))
    for text in (b"one\n", b"two\n", b"six\n"):
        writer.take(text)
        writer.commit()
        writer.archive.maintain(time.time())
    assert [path.read_bytes() for path in rotated(tmp_path)] == [b"two\n", b"six\n"]
    writer.take(b"active\n")
    writer.commit()
    writer.archive.close()
    later = opened(tmp_path, retention_age_s=60, rotate_age_s=1e12)
    later.maintain(time.time() + 100)

    assert rotated(tmp_path) == []
    assert contents(tmp_path) == b"active\n"


def test_what_is_rotated_is_known_after_a_restart(tmp_path: Path) -> None:
    """Nothing is written twice, nothing is forgotten."""
    writer = Writer(opened(tmp_path, rotate_bytes=1, compression="zstd"))
    writer.take(b"one\n")
    writer.commit()
    writer.archive.maintain(time.time())
    writer.archive.close()
    again = Writer(opened(tmp_path))
    again.take(b"one\n")
    again.take(b"two\n")
    again.commit()

    assert contents(tmp_path) == b"two\n"
    assert [file.is_compressed for file in committed_files(tmp_path)] == [False, True]
