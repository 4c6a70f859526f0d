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

    assert (later.put_in, later.dropped, later.dropped_bytes) == (0, 1, 150)
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["00000001.msg"]
    lost = caplog.records[-1]
    assert lost.getMessage() == "a refused batch is lost"
    assert vars(lost)["source"] == "app.log"


def test_one_that_was_emptied_has_room_again(tmp_path: Path) -> None:
    """A person who did what the record asks for need not restart the shipper."""
    quarantine = Quarantine(tmp_path, bytes_max=300)
    quarantine.put(ABOUT, b"x" * 150, "no")
    (tmp_path / "00000001.msg").unlink()

    quarantine.put(ABOUT, b"y" * 150, "no")

    assert (quarantine.put_in, quarantine.dropped) == (2, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["00000002.msg"]


def test_what_is_kept_is_known_after_a_restart(tmp_path: Path) -> None:
    """Until a person removes it: a check that looks later fails as well."""
    Quarantine(tmp_path, bytes_max=1000).put(ABOUT, b"x", "no")
    later = Quarantine(tmp_path, bytes_max=1000)
    assert later.kept() == 1

    (tmp_path / "00000001.msg").unlink()

    assert later.kept() == 0


def test_a_file_that_is_there_already_stays(tmp_path: Path) -> None:
    """Whoever wrote it: what cannot be kept beside it is counted."""
    quarantine = Quarantine(tmp_path, bytes_max=1000)
    (tmp_path / "00000001.msg").write_bytes(b"another")

    quarantine.put(ABOUT, b"x", "no")

    assert (tmp_path / "00000001.msg").read_bytes() == b"another"
    assert quarantine.dropped == 1
