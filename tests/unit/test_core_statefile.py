"""A state file is whole after a crash at any moment, and a broken one is named, never believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logpipeline import statefile
from logpipeline.statefile import StateBroken, read_state, set_aside, write_state

WRITER = """
import sys, os
from pathlib import Path
from logpipeline import statefile
step, path = int(sys.argv[1]), Path(sys.argv[2])
calls = 0
def dying(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), 9)
        return real(*args, **kwargs)
    return call
for name in ("open", "fsync", "rename", "close"):
    setattr(statefile.os, name, dying(getattr(os, name)))
statefile.write_state(path, "test", 1, {"value": "new"})
os._exit(0)
"""


def test_no_file_is_no_state(tmp_path: Path) -> None:
    """The first start."""
    assert read_state(tmp_path / "state", "test", 1) is None


def test_state_reads_back(tmp_path: Path) -> None:
    """Any JSON, paths that are no UTF-8 included."""
    data = {"a": [1, "é", os.fsdecode(b"\xff")]}
    write_state(tmp_path / "state", "test", 1, data)

    assert read_state(tmp_path / "state", "test", 1) == data
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_what_would_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest state is written and read; one byte more leaves the old one where it was."""
    path = tmp_path / "state"
    write_state(path, "test", 1, "x" * 100)
    monkeypatch.setattr(statefile, "STATE_BYTES_MAX", path.stat().st_size)
    write_state(path, "test", 1, "y" * 100)
    with pytest.raises(OSError, match="File too large"):
        write_state(path, "test", 1, "z" * 101)

    assert read_state(path, "test", 1) == "y" * 100


@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new_state(
    tmp_path: Path, step: int
) -> None:
    """The process dies before its n-th call to the system."""
    path = tmp_path / "state"
    write_state(path, "test", 1, {"value": "old"})
    subprocess.run([sys.executable, "-c", WRITER, str(step), str(path)], check=False, timeout=240)

    assert read_state(path, "test", 1) in ({"value": "old"}, {"value": "new"})


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:-1],
        lambda raw: raw.replace(b"value", b"vAlue"),
        lambda raw: b"\0" * len(raw),
        lambda raw: b"garbage",
    ],
)
def test_a_damaged_state_is_refused(tmp_path: Path, damage: object) -> None:
    """Cut short, changed, zeroed by a power cut, or somebody else's."""
    path = tmp_path / "state"
    write_state(path, "test", 1, {"value": "old"})
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    with pytest.raises(StateBroken, match=str(path)):
        read_state(path, "test", 1)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    """An older program must not guess what a newer one wrote."""
    write_state(tmp_path / "state", "test", 2, {})

    with pytest.raises(StateBroken, match="expected test version 1"):
        read_state(tmp_path / "state", "test", 1)


def test_a_state_that_is_set_aside_can_be_looked_at(tmp_path: Path) -> None:
    """And does not overwrite one that was set aside before."""
    for content in ("one", "two"):
        (tmp_path / "state").write_text(content)
        set_aside(tmp_path / "state")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.broken-0", "state.broken-1"]
    assert (tmp_path / "state.broken-1").read_text() == "two"
