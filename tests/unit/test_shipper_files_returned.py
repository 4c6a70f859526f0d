"""Files that were away, or whose device got another number: they are known again by their bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.log_chain import Folder, append, joined
from logpipeline_shipper.files import open_file
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Unreadable
from logpipeline_shipper.files.reader import Reader
from logpipeline_shipper.files.tail import Tail


def rebooted(folder: Folder) -> Folder:
    """Return the same folder in a new process, with another number of its device."""
    saved = folder.chain.saved()
    folder.chain.release()
    for generation in saved["generations"]:
        device, inode, born_ns = generation[1]
        generation[1] = [device + 1, inode, born_ns]
    return Folder(folder.path, saved=saved)


def losses(folder: Folder) -> tuple[int, int]:
    return len(folder.chain.take_losses()), folder.chain.unseen_generations


@pytest.mark.parametrize("has_births", [True, False])
def test_the_number_of_a_device_may_change_at_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_births: bool
) -> None:
    """Disks are numbered in the order in which they are found; not all file systems note births."""
    if not has_births:
        monkeypatch.setattr(open_file, "_LIBC", None)
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    folder.drain()
    again = rebooted(folder)
    append(again.live, b"two\n")

    assert joined(again.drain()) == b"two\n"
    assert losses(again) == (0, 0)


def test_a_log_may_be_rotated_at_a_reboot_that_changes_the_number_of_its_device(
    tmp_path: Path,
) -> None:
    """It got more lines before it was renamed."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    folder.drain()
    append(folder.live, b"two\n")
    again = rebooted(folder)
    again.live.rename(again.live.with_name("app.log.1"))
    append(again.live, b"three\n")

    assert joined(again.drain()) == b"two\nthree\n"
    assert losses(again) == (0, 0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_live_log_that_was_away_goes_on_where_it_was(tmp_path: Path, is_restarted: bool) -> None:
    """A disk is mounted again, or late."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, b"one\n")
    folder.drain()
    aside = tmp_path / "aside"
    folder.path.rename(aside)
    folder.drain()
    if is_restarted:
        folder = Folder(tmp_path / "logs", saved=folder.chain.saved())
        folder.path.rmdir()
    aside.rename(folder.path)
    append(folder.live, b"two\n")

    assert joined(folder.drain()) == b"two\n"
    assert losses(folder) == (0, 0)


def test_a_log_that_was_written_anew_while_it_was_away_is_read_whole(tmp_path: Path) -> None:
    """It is the same file, and longer than before."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, b"one\n")
    folder.drain()
    aside = tmp_path / "aside"
    folder.path.rename(aside)
    folder.drain()
    os.truncate(aside / "app.log", 0)
    append(aside / "app.log", b"another\n")
    aside.rename(folder.path)

    assert joined(folder.drain()) == b"another\n"


def test_a_log_that_cannot_be_opened_after_a_reboot_is_named_and_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither lost nor new meanwhile."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    folder.drain()
    again = rebooted(folder)
    append(again.live, b"two\n")
    with monkeypatch.context() as patched:
        patched.setattr(Tail, "open_file", _denied)
        assert again.drain() == []
        assert again.chain.failing() == [(again.live, "EACCES")]
    again.now_s += 100.0

    assert joined(again.drain()) == b"two\n"
    assert losses(again) == (0, 0)


def _denied(tail: Tail, file: ChainFile) -> Reader:
    raise Unreadable("EACCES")
