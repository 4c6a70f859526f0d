"""What no server takes is kept within a limit, and what is beyond it is counted and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logpipeline_shipper.quarantine import Quarantine

ABOUT: dict[str, object] = {"host": "node-a", "source": "app.log", "start": 0, "end": 4}


def test_a_refused_batch_is_kept_with_its_name_and_reason(tmp_path: Path) -> None:
    """Somebody can look at it, and send it by hand."""
    Quarantine(tmp_path / "q", bytes_max=1000).put(ABOUT, b"one\n", "not allowed")

    head, _, data = (tmp_path / "q" / "00000001.msg").read_bytes().partition(b"\n")
    assert json.loads(head) == {**ABOUT, "reason": "not allowed"}
    assert data == b"one\n"


def test_what_finds_no_room_is_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit holds over restarts, and loss is never silent."""
    Quarantine(tmp_path / "q", bytes_max=300).put(ABOUT, b"x" * 150, "no")
    later = Quarantine(tmp_path / "q", bytes_max=300)

    later.put(ABOUT, b"y" * 150, "no")

    assert (later.kept, later.dropped, later.dropped_bytes) == (0, 1, 150)
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["00000001.msg"]
    lost = caplog.records[-1]
    assert lost.getMessage() == "a refused batch is lost"
    assert vars(lost)["source"] == "app.log"
