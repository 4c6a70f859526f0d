"""A folder of this machine holds a table: what it has is listed whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logpipeline_spark.table.storage import LocalStorage, StorageFailed


def test_a_folder_that_cannot_be_read_is_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an erasure would find no former file there, and prove that nothing is left."""
    storage = LocalStorage(tmp_path)
    storage.write("lines/dt=2026-11-21/one.parquet", b"one")
    storage.write("lines/dt=2026-11-22/two.parquet", b"two")
    scan = os.scandir

    def refuse(path: str) -> Iterator[Any]:
        if "dt=2026-11-22" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)

    with pytest.raises(StorageFailed, match="right"):
        list(storage.list("lines"))


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """Others may remove it at any time, as it holds nothing."""
    assert list(LocalStorage(tmp_path).list("lines")) == []


def test_what_is_gone_before_it_is_in_its_place_is_said(tmp_path: Path) -> None:
    """Whoever takes a table over removes what others seem to have left; what the caller itself does
    not find is its own affair.
    """
    storage = LocalStorage(tmp_path)

    with (
        pytest.raises(StorageFailed, match=r"to .*/lines/one is gone: another writer took"),
        storage.create("lines/one") as file,
    ):
        Path(file.name).unlink()
    with pytest.raises(FileNotFoundError), storage.create("lines/two"):
        storage.open("lines/one")
    assert list(storage.list("lines")) == []
