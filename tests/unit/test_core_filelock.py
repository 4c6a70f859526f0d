"""One process holds a lock, and whoever comes second learns its id."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logpipeline.filelock import FileLock, FileLocked


def test_a_second_one_learns_who_holds_it(tmp_path: Path) -> None:
    """The file may be opened again in the same process: a lock belongs to what was opened."""
    path = tmp_path / "lock"
    with FileLock.take(path) as lock:
        lock.write_owner(4711)
        with pytest.raises(FileLocked, match="4711") as raised:
            FileLock.take(path)

    assert raised.value.owner == "4711"
    FileLock.take(path).close()


def test_an_owner_that_wrote_nothing_is_unknown(tmp_path: Path) -> None:
    """It may have been stopped between its two steps."""
    path = tmp_path / "lock"
    with FileLock.take(path), pytest.raises(FileLocked) as raised:
        FileLock.take(path)

    assert raised.value.owner == "unknown"


def test_a_look_says_whether_a_lock_is_held_and_does_not_free_it(tmp_path: Path) -> None:
    """Also in the process that holds it."""
    path = tmp_path / "lock"
    before = FileLock.is_held(path)
    with FileLock.take(path):
        while_held = FileLock.is_held(path), FileLock.is_held(path)

    assert (before, while_held, FileLock.is_held(path)) == (None, (True, True), False)
    FileLock.take(path).close()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    """The kernel frees the lock of a process that had no time to."""
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from logpipeline.filelock import FileLock; "
        "lock = FileLock.take(Path(sys.argv[1])); print('has it', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"has it\n"
        with pytest.raises(FileLocked):
            FileLock.take(path)
        holder.kill()

    FileLock.take(path).close()


def test_a_file_system_without_locks_is_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error goes up as it is, and nothing stays open."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="No locks"):
        FileLock.take(tmp_path / "lock")

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_whose_file_was_removed_or_replaced_is_not_in_place(tmp_path: Path) -> None:
    """Another process could lock the new file."""
    path = tmp_path / "lock"
    with FileLock.take(path) as lock:
        assert lock.is_in_place()
        path.unlink()
        assert not lock.is_in_place()
        path.touch()
        assert not lock.is_in_place()
