"""Whether a file is text is decided once, and not before it shows enough of itself."""

from __future__ import annotations

from pathlib import Path

from logpipeline_shipper.files.folders import TextCheck, chain_files
from logpipeline_shipper.files.sources import ChainFile


def seen(path: Path) -> ChainFile:
    """Return *path* as a listing shows it."""
    [[file]] = chain_files(path.parent, {path.name}, follow_link=False).values()
    return file


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


def test_a_file_that_took_the_inode_of_a_binary_one_is_looked_at(tmp_path: Path) -> None:
    """What is left out is the file, not its place."""
    path = tmp_path / "app.log"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(bytes(100_000))
    assert check.is_text([seen(path)]) is False
    path.unlink()
    path.write_bytes(b"text\n")

    assert check.is_text([seen(path)]) is True
