"""Bytes that were sent are read again wherever they lie now: one look that misses their file does
not say that they are gone.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from components.log_chain import GRACE_S, Folder, joined
from logpipeline_shipper.files import tail
from logpipeline_shipper.files.open_file import NotNow, TooManyOpen, Unreadable

LINES = b"one\ntwo\n"


class Sent:
    """A folder whose live file was sent, and is rotated to ``app.log.1`` if *is_rotated*; nobody
    holds it open unless it *is_held*.
    """

    def __init__(self, path: Path, *, is_rotated: bool = False, is_held: bool = False) -> None:
        self.folder = Folder(path)
        self.live = self.folder.live
        self.live.write_bytes(LINES)
        (chunk,) = self.folder.read()
        self.generation = chunk.generation
        self.rotated = path / "app.log.1"
        if is_rotated:
            self.live.rename(self.rotated)
            self.live.write_bytes(b"three\n")
            self.folder.drain()
        if not is_held:
            self.folder.chain.release()

    def again(self, end: int = 8) -> bytes | None:
        """Return what a debt of the second line would be paid with."""
        try:
            return joined(self.folder.again(self.generation, 4, end)) or None
        finally:
            self.folder.chain.end_again()

    def is_missed(self) -> bool:
        """Return whether it cannot be read now, and is not given up."""
        with pytest.raises(NotNow):
            self.again()
        return True


def test_it_is_found_wherever_it_lies_now(tmp_path: Path) -> None:
    """In the live file, a renamed or a compressed one; not beyond its end."""
    sent = Sent(tmp_path)
    assert sent.again() == b"two\n"
    sent = Sent(tmp_path, is_rotated=True)
    assert sent.again() == b"two\n"
    packed = tmp_path / "app.log.1.gz"
    packed.write_bytes(gzip.compress(LINES))
    sent.rotated.unlink()
    sent.folder.drain()
    assert sent.again() == b"two\n"
    assert sent.again(9) == b"two\n"


def test_it_is_gone_when_no_look_shows_its_file_for_long_enough(tmp_path: Path) -> None:
    """And not before: the next look may."""
    sent = Sent(tmp_path, is_rotated=True)
    sent.rotated.unlink()
    sent.folder.look()
    assert sent.is_missed()
    sent.folder.now_s += 3 * GRACE_S
    sent.folder.look()

    assert sent.again() is None


def test_a_file_is_not_gone_because_nobody_looked_for_long(tmp_path: Path) -> None:
    """A machine stood still, or was busy, after the look that missed it."""
    sent = Sent(tmp_path, is_rotated=True)
    sent.rotated.rename(tmp_path / "in-between")
    sent.folder.look()
    sent.folder.scan_watermark.until_s = sent.folder.now_s
    sent.folder.now_s += 100 * GRACE_S
    assert sent.is_missed()
    (tmp_path / "in-between").rename(tmp_path / "app.log.2")
    sent.folder.look()

    assert sent.again() == b"two\n"


def test_a_removed_file_that_is_held_open_is_read(tmp_path: Path) -> None:
    """It has no name any more, and all of its bytes."""
    sent = Sent(tmp_path, is_held=True)
    sent.live.unlink()
    sent.folder.look()

    assert sent.again() == b"two\n"


def test_a_live_file_that_is_renamed_after_the_look_is_read_after_the_next(tmp_path: Path) -> None:
    """Another file stands at its path: that one does not say where it is."""
    sent = Sent(tmp_path)
    sent.live.rename(sent.rotated)
    sent.live.write_bytes(b"three\n")
    assert sent.is_missed()
    sent.folder.look()

    assert sent.again() == b"two\n"


@pytest.mark.parametrize("is_rotated", [False, True])
def test_a_file_that_a_look_missed_is_read_when_it_turns_up(
    tmp_path: Path, *, is_rotated: bool
) -> None:
    """A folder that is listed while a file is renamed may show neither of its names."""
    sent = Sent(tmp_path, is_rotated=is_rotated)
    file = sent.rotated if is_rotated else sent.live
    file.rename(tmp_path / "in-between")
    sent.folder.look()
    assert sent.is_missed()
    (tmp_path / "in-between").rename(tmp_path / "app.log.2")
    sent.folder.look()

    assert sent.again() == b"two\n"


def test_a_file_that_was_truncated_after_it_was_copied_is_read_in_the_copy(tmp_path: Path) -> None:
    """Its own file has other bytes now; the copy is known at the next look."""
    sent = Sent(tmp_path)
    sent.rotated.write_bytes(LINES)
    os.truncate(sent.live, 0)
    assert sent.is_missed()
    sent.folder.look()

    assert sent.again() == b"two\n"


def test_a_file_that_is_copied_and_truncated_while_it_is_sent_again_goes_on_in_the_copy(
    tmp_path: Path,
) -> None:
    """What was opened for the first line is empty now. That says nothing about the copy, in which
    the file also has a line that was not read.
    """
    sent = Sent(tmp_path)
    folder = sent.folder
    assert joined(folder.again(sent.generation, 0, 4)) == b"one\n"
    sent.rotated.write_bytes(LINES + b"three\n")
    os.truncate(sent.live, 0)
    assert joined(folder.drain()) == b"three\n"

    assert sent.again() == b"two\n"
    assert folder.drain() == []
    assert folder.chain.take_losses() == []


def test_a_file_that_was_truncated_without_a_copy_is_gone(tmp_path: Path) -> None:
    """Nobody waits for it longer than for a file that was removed."""
    sent = Sent(tmp_path)
    os.truncate(sent.live, 0)
    assert sent.is_missed()
    sent.folder.now_s += 3 * GRACE_S
    sent.folder.look()

    assert sent.again() is None


@pytest.mark.parametrize("error", [TooManyOpen(), Unreadable("EACCES"), OSError(5, "EIO")])
def test_a_file_that_cannot_be_opened_now_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """However long it lasts: its bytes are still there."""
    sent = Sent(tmp_path)

    def refuse(*args: object, **options: object) -> None:
        raise error

    with monkeypatch.context() as fault:
        fault.setattr(tail, "open_reader", refuse)
        for _ in range(8):
            assert sent.is_missed()
            sent.folder.now_s += 100.0

    assert sent.again() == b"two\n"


def test_a_packed_file_that_stays_damaged_is_gone(tmp_path: Path) -> None:
    """It may be one that is still being written, and is tried again; then it is given up."""
    sent = Sent(tmp_path, is_rotated=True)
    packed = tmp_path / "app.log.1.gz"
    packed.write_bytes(gzip.compress(LINES))
    sent.rotated.unlink()
    sent.folder.drain()
    whole = packed.read_bytes()
    with packed.open("r+b") as file:
        file.write(whole[:10] + b"\xff" * (len(whole) - 10))
    for _ in range(2):
        # However often is asked meanwhile, as files change: only time counts.
        assert all(sent.is_missed() for _ in range(5))
        sent.folder.now_s += 100.0

    assert sent.again() is None
