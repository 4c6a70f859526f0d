"""What `up` decides about its server, from one look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline.embedded import Health
from logpipeline_cli.local.keeper import (
    PROBE,
    SILENT_S_MAX,
    UNWELL_S_MAX,
    Seen,
    decide,
    room_problem,
)

WELL = Health(answers=True)
STUCK = Health(answers=True, trouble="write error: no space left on device")
SILENT = Health(answers=False)


def test_a_server_that_is_well_is_left_alone() -> None:
    """Nothing is wrong, and nothing is done."""
    decision = decide(Seen(runs=True, health=WELL))

    assert decision.trouble == ""
    assert not decision.restart


@pytest.mark.parametrize(
    "seen",
    [
        Seen(runs=False, health=SILENT),
        Seen(runs=True, health=STUCK, unwell_s=UNWELL_S_MAX),
        Seen(runs=True, health=SILENT, silent_s=SILENT_S_MAX),
        Seen(runs=True, health=WELL, store_problem="the files were removed"),
    ],
    ids=["ended", "stuck", "silent", "without-files"],
)
def test_a_server_that_would_not_recover_by_itself_is_started_again(seen: Seen) -> None:
    """Each of these lasts until the process is another one."""
    decision = decide(seen)

    assert decision.restart
    assert decision.trouble


def test_a_server_without_room_is_not_started_again() -> None:
    """It would fail at its first write, each time; its trouble says what to do."""
    full = "the disk is full: make room"
    decision = decide(Seen(runs=True, health=STUCK, unwell_s=UNWELL_S_MAX, room_problem=full))

    assert not decision.restart
    assert "make room" in decision.trouble


def test_a_server_that_was_unwell_for_a_moment_is_waited_for() -> None:
    """It says so of itself while a stream is being deleted."""
    decision = decide(Seen(runs=True, health=STUCK))

    assert not decision.restart
    assert "write error" in decision.trouble


def test_a_server_that_was_silent_for_a_moment_is_waited_for() -> None:
    """A slow disk is no reason to kill it."""
    decision = decide(Seen(runs=True, health=SILENT, silent_s=SILENT_S_MAX / 2))

    assert not decision.restart
    assert "does not answer" in decision.trouble


def test_a_disk_with_room_takes_a_write_that_leaves_nothing(tmp_path: Path) -> None:
    """What was written to find out is removed."""
    assert room_problem(tmp_path) == ""
    assert not (tmp_path / PROBE).exists()


def test_a_folder_that_takes_no_writes_is_named(tmp_path: Path) -> None:
    """The message says which folder, and what to do."""
    problem = room_problem(tmp_path / "gone")

    assert str(tmp_path / "gone") in problem
    assert "free some space, or make it writable" in problem
