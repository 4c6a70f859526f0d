"""An archive holds what was committed, once, and nothing else, however it is closed and opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from archiving import PLACE, Writer, contents, opened, position
from logpipeline.wire import BadMessage, Batch
from logpipeline_collector.archive.errors import (
    ArchiveBroken,
    ArchiveBusy,
    ArchiveFailed,
    ArchiveFull,
)
from logpipeline_collector.archive.reading import committed_files


def test_what_is_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    """With the position to go on from."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.archive.close()
    again = opened(tmp_path)
    last = again.committed()

    assert contents(tmp_path) == b"one\n"
    assert last is not None
    assert last.position == position(1)


def test_what_is_not_committed_is_taken_back(tmp_path: Path) -> None:
    """It comes again from the stream."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.take(b"other\n", source="/var/log/other.log")
    assert contents(tmp_path) == b"one\ntwo\n"
    writer.archive.close()
    opened(tmp_path).close()

    assert contents(tmp_path) == b"one\n"
    assert not (tmp_path / "logs/h/_files/var/log/other.log").exists()


def test_a_message_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    """Also not by the next process."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.archive.close()
    again = Writer(opened(tmp_path))
    again.take(b"one\n")
    again.take(b"two\n")
    again.commit()

    assert contents(tmp_path) == b"one\ntwo\n"
    assert again.archive.duplicates == 1


def test_messages_may_be_taken_while_a_commit_is_on_its_way(tmp_path: Path) -> None:
    """They belong to the next one."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    pending = writer.archive.prepare(position(1), epoch=1, rollbacks=0, since=position(0))
    writer.take(b"two\n")
    writer.archive.write(pending)
    writer.archive.close()
    again = opened(tmp_path)

    assert contents(tmp_path) == b"one\n"
    assert [known.offset for known in again.sources_of("h")] == [4]


def test_the_last_commit_can_be_taken_back(tmp_path: Path) -> None:
    """A successor began before it: its lines stand in the successor's folder."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.take(b"other\n", source="/var/log/other.log")
    writer.commit(is_confirmed=False)
    writer.archive.undo()
    last = writer.archive.committed()

    assert contents(tmp_path) == b"one\n"
    assert not (tmp_path / "logs/h/_files/var/log/other.log").exists()
    assert last is not None
    assert last.position == position(1)
    assert [known.offset for known in writer.archive.sources_of("h")] == [4]


def test_the_first_commit_can_be_taken_back(tmp_path: Path) -> None:
    """Nothing is left of it."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit(is_confirmed=False)
    writer.archive.undo()

    assert contents(tmp_path) == b""
    assert writer.archive.committed() is None


def test_a_fenced_archive_gives_up_what_is_not_committed(tmp_path: Path) -> None:
    """And can go on from there."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    writer.archive.discard()
    writer.start = 4
    writer.take(b"TWO\n")
    writer.commit()

    assert contents(tmp_path) == b"one\nTWO\n"


def test_two_processes_cannot_write_one_partition(tmp_path: Path) -> None:
    """The second is told what to do."""
    archive = opened(tmp_path)
    with pytest.raises(ArchiveBusy, match="a folder of its own"):
        opened(tmp_path)
    archive.close()
    opened(tmp_path).close()


def test_a_broken_state_says_what_to_do(tmp_path: Path) -> None:
    """It is never guessed."""
    opened(tmp_path).close()
    (tmp_path / "state/main/p3.sqlite").write_bytes(b"garbage" * 1000)

    with pytest.raises(ArchiveBroken, match="aside"):
        opened(tmp_path)


def test_a_file_that_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    """Somebody put it where ours belongs: ours gets another name."""
    theirs = tmp_path / "logs" / PLACE
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.archive.close()
    opened(tmp_path).close()

    assert theirs.read_bytes() == b"theirs"
    assert contents(tmp_path, PLACE + ".1") == b"one\n"


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Lines must not leave the folder by it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "h").symlink_to(outside)
    writer = Writer(opened(tmp_path))
    with pytest.raises((ArchiveFailed, OSError)):
        writer.take(b"one\n")

    assert list(outside.iterdir()) == []


def test_a_payload_that_is_not_its_range_is_refused(tmp_path: Path) -> None:
    """And nothing is known of it afterwards."""
    archive = opened(tmp_path)
    batch = Batch(source="/x", generation="0" * 16, start=0, end=9, lines=1, format="plain")
    with pytest.raises(BadMessage, match="bad-length"):
        archive.take("h", batch, b"short", sequence=1, time_ns=1)

    assert archive.sources_of("h") == []


def test_a_foreign_message_is_lines_without_their_last_newline(tmp_path: Path) -> None:
    """As fshipper publishes them."""
    archive = opened(tmp_path)
    archive.take("h", None, b"one", sequence=1, time_ns=1)
    archive.take("h", None, b"two\nthree", sequence=2, time_ns=1)

    assert contents(tmp_path, "h/_files/_lines.log") == b"one\ntwo\nthree\n"


def test_a_long_line_stays_one_line(tmp_path: Path) -> None:
    """Its pieces are messages of their own."""
    writer = Writer(opened(tmp_path))
    writer.take(b"a" * 1000)
    for piece in (b"b" * 1000, b"c\nnext\n"):
        writer.take(piece, starts_inside_line=True)
    writer.commit()

    assert contents(tmp_path) == b"a" * 1000 + b"b" * 1000 + b"c\nnext\n"


def test_a_file_that_ended_without_a_newline_does_not_swallow_the_next_line(
    tmp_path: Path,
) -> None:
    """The next generation's first line stands on a line of its own."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\nlast")
    writer.commit()
    writer.archive.close()
    again = Writer(opened(tmp_path), sequence=1)
    batch = Batch(
        source="/var/log/app.log", generation="1" * 16, start=0, end=4, lines=1, format="plain"
    )
    again.archive.take("h", batch, b"new\n", sequence=2, time_ns=1)

    assert contents(tmp_path) == b"one\nlast\nnew\n"


def test_a_hole_is_counted_until_it_is_filled(tmp_path: Path) -> None:
    """Late bytes are written behind what is there."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.start = 8
    writer.take(b"three\n")
    assert writer.archive.missing_bytes == 4
    writer.start = 4
    writer.take(b"two\n")
    writer.commit()

    assert writer.archive.missing_bytes == 0
    assert writer.archive.late_ranges == 1
    assert contents(tmp_path) == b"one\nthree\ntwo\n"


def test_another_folder_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    """What was archived elsewhere is not archived again."""
    writer = Writer(opened(tmp_path / "a"))
    writer.take(b"one\n")
    writer.commit()
    other = Writer(opened(tmp_path / "b"), sequence=1)
    other.archive.import_sources(writer.archive.export_sources())
    other.take(b"one\n")
    other.take(b"two\n")
    other.commit()

    assert contents(tmp_path / "b") == b"two\n"
    with pytest.raises(ValueError, match="snapshot"):
        other.archive.import_sources(b"garbage garbage")


def test_a_full_disk_keeps_nothing_of_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same message is taken when there is room. (A fake: the real one needs a small disk.)"""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    real = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= 6:
            raise OSError(errno.ENOSPC, "no space left")
        return real(descriptor, data[:2], offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ArchiveFull):
        writer.take(b"two and more\n")
    assert contents(tmp_path) == b"one\n"
    monkeypatch.setattr(os, "pwrite", real)
    writer.take(b"two and more\n")
    writer.commit()

    assert contents(tmp_path) == b"one\ntwo and more\n"


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells it once; a second try would lie. (A fake: disks do not fail on demand.)"""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(ArchiveFailed):
        writer.commit()
    monkeypatch.undo()
    writer.archive.close()
    again = opened(tmp_path)

    assert again.committed() is None
    assert contents(tmp_path) == b""


def test_far_more_files_than_descriptors_are_written(tmp_path: Path) -> None:
    """The least recently used one is closed."""
    archive = opened(tmp_path, open_files_max=4)
    writer = Writer(archive)
    for _ in range(2):
        for number in range(60):
            writer.start = 0 if writer.sequence < 60 else 2
            writer.take(b"x\n", host=f"h{number}")
    writer.commit()

    assert all(contents(tmp_path, f"h{n}/_files/var/log/app.log") == b"x\nx\n" for n in range(60))


def test_others_read_only_what_is_committed(tmp_path: Path) -> None:
    """While the collector runs."""
    writer = Writer(opened(tmp_path))
    writer.take(b"one\n")
    writer.commit()
    writer.take(b"two\n")
    found = list(committed_files(tmp_path))

    assert [(file.name, file.length, file.host) for file in found] == [(PLACE, 4, "h")]
