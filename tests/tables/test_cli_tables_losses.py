"""What the commands say of messages that a table never had, and no longer lists."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from logpipeline_cli.main import main
from logpipeline_spark.table import state as state_module
from logpipeline_spark.table.files import Range
from logpipeline_spark.table.storage import LocalStorage
from tables.made import LIFE, STREAM, kept, opened, write


def test_losses_that_are_no_longer_listed_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `verify`, and on the page."""
    monkeypatch.setattr(state_module, "LOSSES_LISTED_MAX", 1)
    storage = LocalStorage(tmp_path / "table")
    table = opened(storage)
    for first in (1, 21, 41):
        added = write(storage, first, first + 9, writer=table.writer)
        ranges, hole = {STREAM: Range(LIFE, first, first + 9)}, frozenset({STREAM})
        table.commit_batch(str(first), ranges, added, kept(table), skipped=hole)
    table.close()
    resource = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "demo"},
        "spec": {"table": {"enabled": True, "path": storage.url}},
    }
    file, page = tmp_path / "pipeline.yaml", tmp_path / "report.html"
    file.write_text(yaml.safe_dump(resource))
    which = ("-f", str(file), "--data", str(tmp_path / "data"))

    assert main(["report", "--out", str(page), *which]) == 0
    assert main(["table", "verify", *which]) == 0
    said, drawn = capsys.readouterr().out, page.read_text()
    assert f"<td>{STREAM}</td><td>31</td><td>40</td>" in drawn
    assert f"<td>{STREAM}</td><td>10 more, longer ago</td>" in drawn
    assert "31 to 40 were deleted before" in said
    assert f"{STREAM}: 10 more were deleted before they were read" in said
