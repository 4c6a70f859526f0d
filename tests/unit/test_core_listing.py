"""Files below a folder that changes while it is listed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logpipeline.listing import files_below


def test_files_are_found_at_any_depth(tmp_path: Path) -> None:
    """And nothing but files."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    wanted = [tmp_path / "one", tmp_path / "a" / "two", tmp_path / "a" / "b" / "three"]
    for path in wanted:
        path.touch()
    (tmp_path / "dangling").symlink_to("nowhere")

    assert sorted(files_below(tmp_path)) == sorted(wanted)


def test_what_is_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    """A folder that was there a moment ago, and one that never was."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "file").touch()
    found = files_below(tmp_path)
    assert next(found) == tmp_path / "file"
    for name in ("one", "two"):
        shutil.rmtree(tmp_path / name)

    assert list(found) == []
    assert list(files_below(tmp_path / "none")) == []


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    """It is not taken for an empty one."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        list(files_below(tmp_path / "file"))
