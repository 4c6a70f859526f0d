"""Whether a file is text is decided once, and not before it shows enough of itself."""

from __future__ import annotations

from pathlib import Path

from logpipeline_shipper.files.folders import TextCheck
from logpipeline_shipper.files.sources import ChainFile


def seen(path: Path) -> ChainFile:
    """Return *path* as a listing shows it."""
    found = path.stat()
    return ChainFile(
        path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, compressed=False
    )


def test_a_first_line_with_a_nul_is_not_taken_for_a_binary_file_for_good(tmp_path: Path) -> None:
    """It is looked at again when its end was written."""
    path = tmp_path / "app.log"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(b"a line with a NUL \0 and more to co")
    assert check.is_text([seen(path)]) is False
    with path.open("ab") as file:
        file.write(b"me\nand then text\n")

    assert check.is_text([seen(path)]) is True


def test_a_binary_file_is_looked_at_once(tmp_path: Path) -> None:
    """Its verdict stays while it grows."""
    path = tmp_path / "wtmp"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(bytes(100_000))
    assert check.is_text([seen(path)]) is False
    path.write_bytes(b"text\n")

    assert check.is_text([seen(path)]) is False
