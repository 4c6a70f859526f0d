"""Which pipeline a command means, and what it says where that is not clear."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logpipeline.filelock import FileLock
from logpipeline.layout import (
    Component,
    Layout,
    NoPipeline,
    RunRecord,
    default_data,
    running_layout,
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all pipelines, of this test alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "logpipeline"


def run(name: str, pid: int) -> Layout:
    """Pretend that process *pid* runs the pipeline *name*."""
    layout = Layout(default_data("default", name))
    layout.data.mkdir(parents=True)
    parts = [Component("collector-0", 7, "127.0.0.1:9")]
    RunRecord(name, "default", pid, "nats://127.0.0.1:4222", components=parts).write(layout)
    return layout


def test_a_record_is_read_as_it_was_written() -> None:
    """Other commands see what `up` says of itself, and no other user of the machine does."""
    layout = run("one", os.getpid())
    record = RunRecord.read(layout)

    assert record is not None
    assert record.components == [Component("collector-0", 7, "127.0.0.1:9")]
    assert layout.run_file.stat().st_mode & 0o077 == 0


def test_the_record_of_a_process_that_is_gone_counts_for_nothing() -> None:
    """After a crash a pipeline does not seem to run."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert RunRecord.read(run("one", ended.pid)) is None


def test_a_record_whose_process_id_another_program_has_counts_for_nothing() -> None:
    """After a power loss the number says nothing; the lock says that no pipeline runs."""
    layout = run("one", os.getpid())
    with FileLock.take(layout.lock_file):
        assert RunRecord.read(layout) is not None

    assert RunRecord.read(layout) is None


def test_a_record_whose_lock_was_removed_counts_while_its_process_lives() -> None:
    """Somebody who tidies a data folder does not make the pipeline seem to have ended."""
    assert RunRecord.read(run("one", os.getpid())) is not None


def test_a_damaged_record_keeps_no_other_pipeline_from_being_meant() -> None:
    """It is named only where nothing else runs."""
    broken = run("broken", os.getpid())
    broken.run_file.write_text("{")
    with pytest.raises(NoPipeline, match="is damaged"):
        running_layout(None, None)
    other = run("one", os.getpid())

    assert running_layout(None, None) == other


def test_what_else_lies_beside_the_data_folders_is_passed_by() -> None:
    """A note of a person, and a folder whose record cannot be read."""
    other = run("one", os.getpid())
    (other.data.parent / "notes.txt").touch()
    strange = run("strange", os.getpid())
    strange.run_file.unlink()
    strange.run_file.mkdir()

    assert running_layout(None, None) == other


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', '{"components": [1]}'])
def test_a_damaged_record_says_what_to_do(text: str) -> None:
    """Half a record is no traceback."""
    layout = run("one", os.getpid())
    layout.run_file.write_text(text)

    with pytest.raises(NoPipeline, match="remove it, and start"):
        RunRecord.read(layout)


def test_the_only_running_pipeline_is_meant() -> None:
    """Who runs one pipeline never has to name it."""
    layout = run("one", os.getpid())

    assert running_layout(None, None) == layout


def test_several_running_pipelines_must_be_told_apart() -> None:
    """The message names those that run."""
    run("one", os.getpid())
    run("two", os.getpid())

    with pytest.raises(NoPipeline, match=r"default\.one, .*default\.two.*--data DIR"):
        running_layout(None, None)


def test_a_folder_is_meant_from_wherever_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is the same to every process that is told of it."""
    folder = default_data("default", "one")
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder.parent)

    assert running_layout(folder.name, None) == Layout(folder)
