"""Who a file is: the same by its path and when it is open, another one once its inode is reused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from logpipeline_shipper.files import open_file
from logpipeline_shipper.files.open_file import look_at, look_at_open


def test_path_and_descriptor_tell_the_same(tmp_path: Path) -> None:
    """And what `stat` tells of a file, a link and a folder."""
    path, link = tmp_path / "app.log", tmp_path / "link"
    path.write_bytes(b"12345")
    link.symlink_to("app.log")
    found = look_at(path, follow_link=False)
    expected = path.stat()

    with path.open("rb") as file:
        assert look_at_open(file.fileno()) == found
    assert look_at(link, follow_link=True) == found
    assert (found.device, found.inode) == (expected.st_dev, expected.st_ino)
    assert (found.size, found.mtime_ns) == (5, expected.st_mtime_ns)
    assert found.is_regular
    assert not look_at(link, follow_link=False).is_regular
    assert not look_at(tmp_path, follow_link=False).is_regular


def test_a_file_stays_the_same_when_it_is_written_and_renamed(tmp_path: Path) -> None:
    """Its birth is not its last change."""
    path = tmp_path / "app.log"
    path.write_bytes(b"one\n")
    before = look_at(path, follow_link=False)
    path.write_bytes(b"another\n")
    os.utime(path, ns=(1, 1))
    after = look_at(path.rename(tmp_path / "app.log.1"), follow_link=False)

    assert after == replace(before, size=8, mtime_ns=1)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """The one that `stat` has for it."""
    with pytest.raises(FileNotFoundError, match=r"app\.log"):
        look_at(tmp_path / "app.log", follow_link=False)


def test_without_the_call_files_have_no_birth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is as with it."""
    path = tmp_path / "app.log"
    path.write_bytes(b"12345")
    found = look_at(path, follow_link=False)
    monkeypatch.setattr(open_file, "_LIBC", None)

    assert look_at(path, follow_link=False) == replace(found, born_ns=0)
    with path.open("rb") as file:
        assert look_at_open(file.fileno()) == replace(found, born_ns=0)
