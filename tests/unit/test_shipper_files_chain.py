"""What a chain makes of rotation, truncation, deletion and restarts: one case each."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from components.log_chain import GRACE_S, Folder, append, joined
from logpipeline.checksum import NOTHING
from logpipeline.wire import Previous

TIME = b"2026-11-21T10:00:00.123456789Z"


def compress(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    path.unlink()
    return packed


def test_a_chunk_says_where_its_bytes_are(tmp_path: Path) -> None:
    """Generation, range, lines and bytes are those of the file."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\ntwo\nthr")
    (chunk,) = folder.read()

    assert (chunk.start, chunk.end, chunk.checksums.before) == (0, 8, NOTHING)
    assert (chunk.data, chunk.lines, chunk.previous) == (b"one\ntwo\n", 2, None)
    assert folder.chain.position() == (chunk.generation, 8)


def test_hostile_bytes_arrive_unchanged(tmp_path: Path) -> None:
    """NUL, invalid UTF-8, CR, escapes and empty lines are bytes like others."""
    data = b"a\x00b\n\n\n\xff\xfe\r\n\x1b]0;x\x07\n\xe2\x80\xa8\n"
    folder = Folder(tmp_path)
    folder.live.write_bytes(data)

    assert joined(folder.read()) == data


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    """Late writes to the renamed file arrive first. A line that it ends with and that was never
    finished does not keep the new file's lines waiting, and arrives too.
    """
    folder = Folder(tmp_path, unfinished_s=60.0)
    folder.live.write_bytes(b"one\n")
    [one] = folder.read()
    old = folder.live.rename(tmp_path / "app.log.1")
    append(old, b"late\nend")
    [late] = folder.read()
    folder.live.write_bytes(b"two\n")
    assert folder.read() == []

    folder.now_s += GRACE_S
    [two] = folder.read()
    folder.now_s += 60
    [end] = folder.read()
    assert (late.data, two.data) == (b"late\n", b"two\n")
    assert (end.data, end.lines, end.ends_inside_line) == (b"end", 1, False)
    assert (end.generation, end.start) == (one.generation, 9)
    assert two.previous == Previous(one.generation, None)


def test_a_renamed_file_waits_for_the_new_one(tmp_path: Path) -> None:
    """Without a newer file the writer may still be at the old one, however long it takes."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\nunfini")
    folder.read()
    old = folder.live.rename(tmp_path / "app.log.1")
    for _ in range(5):
        folder.now_s += GRACE_S
        assert folder.read() == []
    append(old, b"shed\n")

    assert joined(folder.read()) == b"unfinished\n"


def test_what_is_written_after_the_end_was_seen_still_arrives(tmp_path: Path) -> None:
    """A writer that never opens the new file is followed all the same."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    folder.read()
    old = folder.live.rename(tmp_path / "app.log.1")
    folder.live.write_bytes(b"two\n")
    folder.drain()
    append(old, b"very late\n")

    assert joined(folder.drain()) == b"very late\n"


def test_several_rotations_while_away_are_read_oldest_first(tmp_path: Path) -> None:
    """Compressed or not, every file that came and is still there is read, from its beginning."""
    folder = Folder(tmp_path, cri=True)
    first = TIME + b" stdout F first\n"
    folder.live.write_bytes(first)
    folder.read()
    saved = json.loads(json.dumps(folder.chain.saved()))
    append(folder.live, TIME + b" stdout F more\n")
    for number in range(3):
        rotated = folder.live.rename(folder.path / f"0.log.2026112{number}-100000")
        compress(rotated)
        folder.live.write_bytes(TIME + b" stdout F %d\n" % number)

    again = Folder(tmp_path, cri=True, saved=saved)
    texts = [line.split()[-1] for line in joined(again.drain()).splitlines()]
    assert texts == [b"more", b"0", b"1", b"2"]
    assert (again.chain.missing_bytes, again.chain.restarts) == (0, 0)


def test_a_compressed_file_keeps_name_and_offset(tmp_path: Path) -> None:
    """What was read before it was compressed is not read again, even by a new process."""
    folder = Folder(tmp_path, batch_bytes=8)
    folder.live.write_bytes(b"one\ntwo\nthree\n")
    folder.look()
    chunk = folder.chain.read(folder.now_s)
    assert chunk is not None
    folder.chain.acknowledge(chunk)
    saved = folder.chain.saved()
    compress(folder.live.rename(tmp_path / "app.log.1"))

    (rest,) = Folder(tmp_path, saved=saved).drain()
    assert (rest.generation, rest.start, rest.data) == (chunk.generation, chunk.end, b"three\n")


def test_a_broken_compressed_file_is_passed_and_counted(tmp_path: Path) -> None:
    """What can be unpacked arrives; the rest is given up after some tries, with its reason."""
    lines = b"".join(b"%05d\n" % number for number in range(20_000))
    packed = gzip.compress(lines, 1)
    (tmp_path / "app.log.1.gz").write_bytes(packed[: len(packed) // 2])
    folder = Folder(tmp_path, batch_bytes=65536, line_bytes=65536)
    folder.live.write_bytes(b"next\n")
    data = joined(folder.drain() + folder.drain())

    assert data.endswith(b"\nnext\n")
    assert lines.startswith(data.removesuffix(b"next\n"))
    assert folder.chain.unreadable == {"gzip-cut-short": 1}


def test_a_truncated_file_begins_anew(tmp_path: Path) -> None:
    """Whether it shrank, or has grown past the offset with other bytes."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\ntwo\n")
    folder.read()
    os.truncate(folder.live, 0)
    append(folder.live, b"three\n")
    assert joined(folder.drain()) == b"three\n"
    os.truncate(folder.live, 0)
    append(folder.live, b"something longer than before\n")

    assert joined(folder.drain()) == b"something longer than before\n"
    assert folder.chain.truncations == 2


def test_copytruncate_loses_nothing_that_was_copied(tmp_path: Path) -> None:
    """What was not read before the truncation is read from the copy, where it stopped."""
    folder = Folder(tmp_path, batch_bytes=4)
    folder.live.write_bytes(b"one\ntwo\n")
    folder.look()
    first = folder.chain.read(folder.now_s)
    assert first is not None
    folder.chain.acknowledge(first)
    shutil.copyfile(folder.live, tmp_path / "app.log.1")
    folder.look()
    os.truncate(folder.live, 0)
    append(folder.live, b"new\n")

    second, third = folder.drain()
    assert (second.generation, second.start, second.data) == (first.generation, 4, b"two\n")
    assert (third.start, third.data) == (0, b"new\n")


def test_an_inode_that_is_used_again_is_no_old_friend(tmp_path: Path) -> None:
    """A new file with the inode of a known one is read from its beginning."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    folder.read()
    saved = folder.chain.saved()
    folder.chain.release()
    inode = folder.live.stat().st_ino
    for number in range(50):
        folder.live.unlink()
        folder.live.write_bytes(b"another one, number %d\n" % number)
        if folder.live.stat().st_ino == inode:
            break
    again = Folder(tmp_path, saved=saved)

    assert joined(again.drain()).startswith(b"another one")


def test_a_deleted_file_is_read_to_its_end(tmp_path: Path) -> None:
    """The descriptor outlives the name, and is given back afterwards."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\ntwo")
    folder.look()
    folder.live.unlink()

    assert joined(folder.drain()) == b"one\ntwo"
    assert folder.chain.is_finished()
    assert len(folder.limits.descriptors) == 0


@pytest.mark.parametrize("limit", [{"deleted_bytes": 10}, {"deleted_age_s": 5.0}])
def test_deleted_files_over_the_limit_are_counted_exactly(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    """They are given up, with each byte that was not read."""
    folder = Folder(tmp_path, **limit)
    folder.live.write_bytes(b"one\ntwo\nthree\n")
    folder.look()
    append(folder.live, b"four\n")
    folder.live.unlink()
    folder.look()
    folder.now_s += 10
    folder.chain.close_idle(folder.now_s)

    assert folder.chain.missing_bytes == 19
    assert folder.chain.unseen_generations == 0


def test_a_file_that_vanished_unread_is_told(tmp_path: Path) -> None:
    """A state that knows of a file which is gone for good counts it as unseen."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    [one] = folder.read()
    saved = folder.chain.saved()
    folder.chain.release()
    folder.live.unlink()
    (tmp_path / "app.log.1").write_bytes(b"much later\n")
    folder.live.write_bytes(b"now\n")
    again = Folder(tmp_path, saved=saved)
    later, _ = again.drain()

    assert again.chain.unseen_generations == 1
    assert later.previous == Previous(one.generation, None)


def test_nothing_is_told_as_vanished_because_nobody_looked_for_long(tmp_path: Path) -> None:
    """A look missed a file, and then the machine stood still."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\ntwo\n")
    folder.look()
    folder.chain.read(folder.now_s)
    saved = folder.chain.saved()
    folder.chain.release()
    folder.live.rename(tmp_path / "in-between")
    folder.live.write_bytes(b"now\n")
    again = Folder(tmp_path, saved=saved)
    again.look()
    again.scan_watermark.until_s = again.now_s
    again.now_s += 1000
    before = again.read_on()
    (tmp_path / "in-between").rename(tmp_path / "app.log.1")

    assert joined(before + again.drain()) == b"one\ntwo\nnow\n"
    assert (again.chain.take_losses(), again.chain.unseen_generations) == ([], 0)


def test_a_file_that_cannot_be_opened_is_not_gone(tmp_path: Path) -> None:
    """It is counted with its reason, tried again, and read when it can be."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    listing = folder.discovery.scan()[0]
    folder.live.rename(tmp_path / "kept")
    folder.live.symlink_to(tmp_path / "kept")  # root may read everything, but follows no link
    chain = folder.take(listing)
    assert chain.read(folder.now_s) is None
    assert chain.unreadable == {"symbolic-link": 1}
    assert chain.failing() == [(folder.live, "symbolic-link")]
    folder.live.unlink()
    (tmp_path / "kept").rename(folder.live)
    folder.now_s += 5

    assert joined(folder.read_on()) == b"one\n"
    assert (chain.missing_bytes, chain.failing()) == (0, [])


def test_more_files_than_descriptors_are_all_read(tmp_path: Path) -> None:
    """The least recently used descriptor makes room, and its file is opened again."""
    for number in range(9, 0, -1):
        (tmp_path / f"app.log.{number}").write_bytes(b"line %d\n" % number)
    folder = Folder(tmp_path, open_files=2)
    folder.live.write_bytes(b"line 0\n")
    lines = joined(folder.drain()).splitlines()

    assert lines == [b"line %d" % number for number in range(9, -1, -1)]
    assert len(folder.limits.descriptors) <= 2


@pytest.mark.parametrize("is_after_restart", [False, True])
def test_what_is_written_to_an_idle_file_just_before_its_removal_is_read(
    tmp_path: Path, is_after_restart: bool
) -> None:
    """The newest file of a source stays open, and is opened at a start: a job writes one line an
    hour, and removes its log as it ends, between two looks at the folder.
    """
    folder = Folder(tmp_path, idle_close_s=10.0)
    folder.live.write_bytes(b"one\n")
    folder.drain()
    if is_after_restart:
        saved = folder.chain.saved()
        folder.chain.release()
        folder = Folder(tmp_path, idle_close_s=10.0, saved=saved)
        folder.look()
    folder.now_s += 3600
    folder.chain.close_idle(folder.now_s)
    append(folder.live, b"two\n")
    folder.live.unlink()

    assert joined(folder.drain()) == b"two\n"
    assert folder.chain.is_finished()
    assert len(folder.limits.descriptors) == 0


def test_idle_files_cost_half_of_the_descriptors(tmp_path: Path) -> None:
    """Those that have a newer one cost none after a while, and nothing is forgotten."""
    folder = Folder(tmp_path, idle_close_s=10.0, open_files=4)
    (tmp_path / "app.log.1").write_bytes(b"zero\n")
    folder.live.write_bytes(b"one\n")
    folder.drain()
    assert len(folder.limits.descriptors) == 2
    folder.chain.close_idle(folder.now_s + 10)
    assert len(folder.limits.descriptors) == 1
    folder.limits.descriptors.open_files_max = 1
    folder.chain.close_idle(folder.now_s + 10)
    assert len(folder.limits.descriptors) == 0
    append(folder.live, b"two\n")

    assert joined(folder.read_on()) == b"two\n"


def test_reading_from_the_end_leaves_out_what_is_there(tmp_path: Path) -> None:
    """A line that is being written is delivered whole, older files not at all."""
    (tmp_path / "app.log.1").write_bytes(b"old\n")
    folder = Folder(tmp_path, read_from="end")
    folder.live.write_bytes(b"one\ntwo\nthr")
    assert folder.read() == []
    append(folder.live, b"ee\n")
    chunks = folder.drain()

    assert joined(chunks) == b"three\n"
    assert [chunk.begins for chunk in chunks] == [True]


def test_a_file_that_took_the_inode_of_a_listed_one_is_not_taken_for_it(tmp_path: Path) -> None:
    """Rotated twice between the look and the opening: what was listed is compressed by now, and
    comes first all the same.
    """
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    rotate_numbered(folder.live, b"two\n")
    [listing] = folder.discovery.scan()
    rotate_numbered(folder.live, b"three\n")
    rotate_numbered(folder.live, b"four\n")
    folder.take(listing)

    assert folder.read_on() == []
    assert joined(folder.drain()) == b"one\ntwo\nthree\nfour\n"


def rotate_numbered(live: Path, data: bytes) -> None:
    """As logrotate does with `delaycompress`; *data* begins the new file."""
    older = live.with_name("app.log.1")
    for number in (2, 1):
        packed = live.with_name(f"app.log.{number}.gz")
        if number == 1 and older.exists():
            compress(older)
        if packed.exists():
            packed.rename(live.with_name(f"app.log.{number + 1}.gz"))
    live.rename(older)
    live.write_bytes(data)
