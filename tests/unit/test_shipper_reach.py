"""The file with the namespaces that are read: what it says counts, and silence is no word."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline_shipper.kubernetes.pods import NamespacesFile


@pytest.mark.parametrize("nonsense", ["", "{}", '["a", 1]', "shop", None])
def test_nonsense_changes_nothing(tmp_path: Path, nonsense: str | None) -> None:
    """Neither a file that is half written, nor one that is gone, opens or closes a namespace."""
    path, told = tmp_path / "namespaces.json", list[frozenset[str]]()
    file = NamespacesFile(path, told.append)
    file.look()
    path.write_text('["shop"]')
    file.look()
    file.look()
    path.unlink()
    if nonsense is not None:
        path.write_text(nonsense)
    file.look()
    path.write_text('["shop", "web"]')
    file.look()

    assert told == [frozenset({"shop"}), frozenset({"shop", "web"})]
