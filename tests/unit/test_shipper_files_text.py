"""Whether a file is text is decided once, and not before it shows enough of itself."""

from __future__ import annotations

from pathlib import Path

from logpipeline_shipper.files.directory_scan import TextCheck, chain_files, open_folder
from logpipeline_shipper.files.listing import ChainFile

WTMP = (b"\2\0\0\0" + bytes(28) + b"root" + bytes(348)) * 100


def seen(path: Path) -> ChainFile:
    """Return *path* as a listing shows it."""
    with open_folder(path.parent, path.parent) as folder:
        [[file]] = chain_files(folder, {path.name}, follow_link=False).values()
    return file


def test_a_first_line_with_a_nul_is_not_taken_for_a_binary_file_for_good(tmp_path: Path) -> None:
    """It is looked at again when its end was written."""
    path = tmp_path / "app.log"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(b"\0\1\2" * 100 + b"a line with a NUL and more to co")
    assert check.is_text(seen(path)) is False
    with path.open("ab") as file:
        file.write(b"me\n" + b"and then text\n" * 1000)

    assert check.is_text(seen(path)) is True


def test_a_binary_file_stays_one_while_it_grows(tmp_path: Path) -> None:
    """Lines behind its records change nothing."""
    path = tmp_path / "wtmp"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(WTMP)
    assert check.is_text(seen(path)) is False
    with path.open("ab") as file:
        file.write(b"text\n")

    assert check.is_text(seen(path)) is False


def test_a_file_that_took_the_inode_of_a_binary_one_is_looked_at(tmp_path: Path) -> None:
    """What is left out is the file, not its place."""
    path = tmp_path / "app.log"
    check = TextCheck(lambda path, reason: None)
    path.write_bytes(WTMP)
    assert check.is_text(seen(path)) is False
    path.unlink()
    path.write_bytes(b"text\n")

    assert check.is_text(seen(path)) is True


def test_a_hole_before_the_lines_is_no_verdict(tmp_path: Path) -> None:
    """What truncation leaves to a program that does not append says nothing about its lines."""
    path = tmp_path / "app.log"
    check = TextCheck(lambda path, reason: None)
    with path.open("wb") as file:
        file.truncate(1_000_000)
    assert check.is_text(seen(path)) is None
    with path.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"a line\n")

    assert check.is_text(seen(path)) is True


def test_a_long_first_line_with_a_nul_is_text(tmp_path: Path) -> None:
    """It is the share that tells."""
    path = tmp_path / "app.log"
    path.write_bytes(b"x" * 2000 + b"\0" + b"y" * 2000)

    assert TextCheck(lambda path, reason: None).is_text(seen(path)) is True


def test_a_hole_among_the_lines_makes_no_log_binary(tmp_path: Path) -> None:
    """A power cut, or a program that does not append, leaves NULs where lines were."""
    path = tmp_path / "app.log"
    path.write_bytes(b"a line\n" * 100 + bytes(8192) + b"after the boot\n" * 100)

    assert TextCheck(lambda path, reason: None).is_text(seen(path)) is True
