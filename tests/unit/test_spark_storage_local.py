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
