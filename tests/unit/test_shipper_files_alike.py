"""Files that neither a name, nor a first line, nor a last one tells apart."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from components.log_chain import Folder, append, joined, pack
from logpipeline_shipper.files import file_identity
from logpipeline_shipper.files.generations import LISTING_WAIT_S
from logpipeline_shipper.files.open_file import look_at

HEADER = b"time,level,message\n"
# More than any rotator keeps, and than was remembered once.
ROTATIONS = 100
# More than is kept of a place in a file, and than is looked at of its beginning.
SAME_LINES = b"ok\n" * 2048


def rotate(live: Path, *, kept: int) -> None:
    """As logrotate does with `create`."""
    for number in range(kept, 0, -1):
        old = live.with_name(f"{live.name}.{number}")
        if old.exists():
            old.rename(live.with_name(f"{live.name}.{number + 1}"))
    live.with_name(f"{live.name}.{kept + 1}").unlink(missing_ok=True)
    live.rename(live.with_name(f"{live.name}.1"))


def copytruncate(live: Path, *, kept: int) -> None:
    """As logrotate does with `copytruncate`."""
    for number in range(kept, 0, -1):
        old = live.with_name(f"{live.name}.{number}")
        if old.exists():
            old.rename(live.with_name(f"{live.name}.{number + 1}"))
    live.with_name(f"{live.name}.{kept + 1}").unlink(missing_ok=True)
    shutil.copyfile(live, live.with_name(f"{live.name}.1"))
    os.truncate(live, 0)


def truncate(live: Path, *, kept: int) -> None:
    """As `> app.log` does."""
    os.truncate(live, 0)


@pytest.mark.parametrize("rotate", [rotate, copytruncate, truncate])
def test_a_first_line_that_is_always_the_same_names_nothing(
    tmp_path: Path, rotate: Callable[..., None]
) -> None:
    """A hundred files that begin alike are a hundred generations, and no id is used twice."""
    folder = Folder(tmp_path)
    arrived, ids = b"", set()
    for number in range(ROTATIONS):
        append(folder.live, HEADER + b"line %d\n" % number)
        chunks = folder.drain()
        arrived += joined(chunks)
        ids |= {chunk.generation for chunk in chunks}
        rotate(folder.live, kept=3)
        assert folder.read() == []

    assert arrived == b"".join(HEADER + b"line %d\n" % n for n in range(ROTATIONS))
    assert len(ids) == ROTATIONS
    assert folder.chain.missing_bytes == 0


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("pause_s", [0.1, 10.0])
def test_a_program_that_says_the_same_in_each_run_is_heard_each_time(
    tmp_path: Path, is_made_anew: bool, pause_s: float
) -> None:
    """`cmd > job.log`: the same bytes in the same file, or in another one of that name."""
    folder = Folder(tmp_path)
    arrived = b""
    for run in range(8):
        if is_made_anew:
            folder.live.unlink(missing_ok=True)
        folder.live.write_bytes(b"start\nend\n")
        # Clocks of file systems tick a hundred times a second; runs are further apart.
        os.utime(folder.live, ns=(run, run * 1_000_000_000))
        arrived += joined(folder.read())
        folder.now_s += pause_s
    arrived += joined(folder.drain())

    assert arrived == b"start\nend\n" * 8


def test_a_listing_in_the_middle_of_a_write_is_no_rewrite(tmp_path: Path) -> None:
    """A write sets the time before the length, and no listing need come when both are there."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    assert joined(folder.read()) == b"one\n"
    os.utime(folder.live, ns=(1, 1))
    assert folder.read() == []
    append(folder.live, b"two\n")
    os.utime(folder.live, ns=(1, 1))
    folder.now_s += 10

    assert joined(folder.read_on()) == b"two\n"
    assert folder.chain.truncations == 0


def test_a_write_that_waits_for_a_second_is_no_rewrite(tmp_path: Path) -> None:
    """The time is new, and the length old, while it waits for the file system's journal."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    assert joined(folder.read()) == b"one\n"
    os.utime(folder.live, ns=(1, 1))
    for _ in range(4):
        assert folder.read() == []
        folder.now_s += 0.3
    append(folder.live, b"two\n")

    assert joined(folder.read()) == b"two\n"
    assert folder.chain.truncations == 0


def test_a_large_file_that_is_only_touched_is_not_sent_again(tmp_path: Path) -> None:
    """Start scripts do that; nobody writes the very same megabytes twice."""
    folder = Folder(tmp_path, batch_bytes=1 << 20)
    content = b"line\n" * 400_000
    folder.live.write_bytes(content)
    first = folder.read()
    os.utime(folder.live, ns=(1, 1))
    assert joined(first) == content

    assert folder.drain() == []


def test_a_copy_that_appears_late_brings_nothing(tmp_path: Path) -> None:
    """Long after the truncation, by rename from a folder that nobody watches."""
    folder = Folder(tmp_path)
    content = b"".join(b"line %d\n" % number for number in range(100))
    folder.live.write_bytes(content)
    assert joined(folder.read()) == content
    os.truncate(folder.live, 0)
    assert folder.drain() == []
    folder.now_s += 3600
    (tmp_path / "app.log.1").write_bytes(content)

    assert folder.drain() == []
    assert folder.chain.missing_bytes == 0


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_a_file_that_ends_like_a_former_one_is_no_copy_of_it(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """As long, with the same last lines: all bytes have to be the same."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"1\n" + SAME_LINES)
    folder.drain()
    folder.live.unlink()
    folder.drain()
    ending = "" if pack is bytes else ".gz"
    folder.live.with_name(f"app.log.1{ending}").write_bytes(pack(b"2\n" + SAME_LINES))
    folder.live.write_bytes(b"3\n")

    assert joined(folder.drain()) == b"2\n" + SAME_LINES + b"3\n"


def test_a_log_that_was_written_anew_with_the_same_ends_is_read(tmp_path: Path) -> None:
    """No shipper ran meanwhile: inode, first bytes, and those before what was read are the same."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(SAME_LINES + b"1\n" + SAME_LINES)
    folder.drain()
    anew = SAME_LINES + b"2\n" + SAME_LINES + b"3\n"
    folder.live.write_bytes(anew)
    again = Folder(tmp_path, saved=folder.chain.saved())

    assert joined(again.drain()) == anew


def test_what_a_late_copy_has_more_is_read(tmp_path: Path) -> None:
    """What was written between the last read and the copying."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    [one] = folder.read()
    os.truncate(folder.live, 0)
    folder.drain()
    (tmp_path / "app.log.1").write_bytes(b"one\ntwo\n")

    [two] = folder.drain()
    assert (two.generation, two.start, two.data) == (one.generation, 4, b"two\n")


def test_lines_behind_the_hole_of_a_truncation_are_read(tmp_path: Path) -> None:
    """A program that does not append goes on at its old place; also after a restart."""
    folder = Folder(tmp_path)
    with folder.live.open("wb", buffering=0) as writer:
        writer.write(b"before\n" * 10_000)
        assert joined(folder.read()) == b"before\n" * 10_000
        shutil.copyfile(folder.live, tmp_path / "app.log.1")
        os.truncate(folder.live, 0)
        writer.write(b"behind\n")
        [behind] = folder.drain()
        assert (behind.data, behind.begins) == (b"behind\n", True)
        assert folder.chain.hole_bytes == 70_000
        saved = json.loads(json.dumps(folder.chain.saved()))
        writer.write(b"later\n")

    assert joined(Folder(tmp_path, saved=saved).drain()) == b"later\n"


def test_files_that_look_rotated_and_are_written_to_are_read_without_tearing_lines(
    tmp_path: Path,
) -> None:
    """`app.log.1` beside `app.log`, both of living programs, one with a buffer."""
    folder = Folder(tmp_path)
    one, two = tmp_path / "app.log.1", folder.live
    arrived = b""
    for number in range(20):
        append(one, b"one %d\none " % number)
        append(two, b"two %d\n" % number)
        arrived += joined(folder.drain())
        append(one, b"goes on %d\n" % number)
    arrived += joined(folder.drain())
    lines = sorted(arrived.splitlines())
    wanted = one.read_bytes().splitlines() + two.read_bytes().splitlines()

    assert lines == sorted(wanted)


def test_a_restart_knows_a_renamed_file_by_its_inode(tmp_path: Path) -> None:
    """Though another one with its first line, and its last, stands where it was."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(HEADER + b"a\nend\n")
    folder.read()
    saved = json.loads(json.dumps(folder.chain.saved()))
    append(folder.live, b"more\n")
    rotate(folder.live, kept=3)
    folder.live.write_bytes(HEADER + b"b\nend\n")

    assert joined(Folder(tmp_path, saved=saved).drain()) == b"more\n" + HEADER + b"b\nend\n"


def test_what_is_newer_waits_for_a_file_that_was_renamed_under_our_eyes(tmp_path: Path) -> None:
    """A rotator renames the older file between the listing and the look at it."""
    folder = Folder(tmp_path)
    old, new = tmp_path / "app.log.2", tmp_path / "app.log.1"
    old.write_bytes(HEADER + b"old\n")
    new.write_bytes(HEADER + b"new\n")
    [listing] = folder.discovery.scan()
    old.rename(tmp_path / "app.log.3")
    folder.take(listing)
    before = joined(folder.read_on())
    folder.look()

    assert before == b""
    assert joined(folder.drain()) == HEADER + b"old\n" + HEADER + b"new\n"


def test_what_is_newer_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A file that can never be looked at holds nothing up for long."""
    folder = Folder(tmp_path)
    (tmp_path / "app.log.2.gz").write_bytes(b"no gzip at all")
    (tmp_path / "app.log.1").write_bytes(HEADER + b"new\n")
    [listing] = folder.discovery.scan()
    gone, *rest = listing.files
    folder.take(replace(listing, files=(replace(gone, inode=1), *rest)))
    before = joined(folder.read_on())
    folder.now_s += 60

    assert before == b""
    assert joined(folder.read_on()) == HEADER + b"new\n"


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("ending", PACK)
def test_a_rotated_file_that_is_packed_is_the_same_one(tmp_path: Path, ending: str) -> None:
    """While it is packed, the unfinished copy lies beside it; then it alone is there."""
    folder = Folder(tmp_path)
    content = HEADER + b"".join(b"line %d\n" % number for number in range(10_000))
    append(folder.live, content[:50_000])
    arrived = joined(folder.drain())
    append(folder.live, content[50_000:])
    rotated = tmp_path / "app.log.1"
    folder.live.rename(rotated)
    append(folder.live, HEADER + b"new\n")
    packed = PACK[ending](content)
    copy = tmp_path / f"app.log.1.{ending}"
    copy.write_bytes(packed[: len(packed) // 2])
    folder.look()
    copy.write_bytes(packed)
    rotated.unlink()
    arrived += joined(folder.drain())

    assert arrived == content + HEADER + b"new\n"
    assert (folder.chain.missing_bytes, folder.chain.unseen_generations) == (0, 0)


@pytest.mark.parametrize("ending", PACK)
def test_a_packed_file_beside_the_live_one_is_read(tmp_path: Path, ending: str) -> None:
    """It has the live file's name, and other lines: it was written before."""
    folder = Folder(tmp_path)
    (tmp_path / f"app.log.{ending}").write_bytes(PACK[ending](HEADER + b"old\n"))
    append(folder.live, HEADER + b"new\n")

    assert joined(folder.drain()) == HEADER + b"old\n" + HEADER + b"new\n"


@pytest.fixture
def header_alone(tmp_path: Path) -> Folder:
    """Return a folder with three logs: the first one was read; the second one has only a header and
    lies in `hidden`, so that no listing showed it; the live one has the same header.
    """
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    assert joined(folder.drain()) == HEADER + b"1\n"
    folder.live.rename(tmp_path / "app.log.2")
    append(folder.live, HEADER)
    folder.live.rename(tmp_path / "hidden")
    append(folder.live, HEADER)
    folder.look()
    return folder


def pack_younger(path: Path, live: Path, header: bytes = HEADER) -> None:
    """Pack *header* into *path*, which is younger than *live* by the clock of the file system."""
    while True:
        pack(path, header)
        if look_at(path, follow_link=False).born_ns > look_at(live, follow_link=False).born_ns:
            return
        path.unlink()


def test_a_header_that_was_packed_behind_the_next_log_is_no_copy_of_that_one(
    header_alone: Folder,
) -> None:
    """As logback does it: it makes the new log first, and packs the former one beside it."""
    folder = header_alone
    pack_younger(folder.live.with_name("app.log.1.gz"), folder.live)
    arrived = joined(folder.read())
    append(folder.live, b"2\n")
    folder.look()
    folder.live.rename(folder.live.with_name("app.log.0"))
    append(folder.live, HEADER + b"3\n")

    assert arrived + joined(folder.drain()) == HEADER + HEADER + b"2\n" + HEADER + b"3\n"
    assert folder.chain.take_losses() == []


def test_a_header_that_was_packed_holds_the_next_log_up_for_a_listing(
    header_alone: Folder,
) -> None:
    """Nothing but that the log is not truncated shows that it is no copy."""
    folder = header_alone
    pack_younger(folder.live.with_name("app.log.1.gz"), folder.live)
    assert folder.read() == []
    folder.now_s += LISTING_WAIT_S
    append(folder.live, b"2\n")

    assert joined(folder.read()) == HEADER + HEADER + b"2\n"


def read_and_packed(folder: Folder, header: bytes = HEADER) -> bytes:
    """Let *folder* have a former log, and a live one that is only *header*. Return what was read of
    both before the live one was packed under another name.
    """
    append(folder.live.with_name("app.log.2"), header + b"1\n")
    append(folder.live, header)
    arrived = joined(folder.drain())
    pack_younger(folder.live.with_name("app.log.1.gz"), folder.live, header)
    return arrived


def test_a_header_that_is_packed_before_the_log_is_truncated_is_read_once(
    tmp_path: Path,
) -> None:
    """As `gzip -c app.log > app.log.1.gz && truncate -s 0 app.log` does it."""
    folder = Folder(tmp_path)
    arrived = read_and_packed(folder)
    arrived += joined(folder.read())
    os.truncate(folder.live, 0)
    append(folder.live, b"2\n")

    assert arrived + joined(folder.drain()) == HEADER + b"1\n" + HEADER + b"2\n"
    assert folder.chain.take_losses() == []


def test_a_short_copy_of_a_log_that_is_long_there_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As logrotate's `copy` and `compress` make it every day."""
    monkeypatch.setattr(file_identity, "_PACKED_WITHIN_NS", 0)
    folder = Folder(tmp_path)
    arrived = read_and_packed(folder)

    assert arrived + joined(folder.drain()) == HEADER + b"1\n" + HEADER


def test_a_copy_of_more_bytes_than_a_header_has_is_a_copy_at_once(tmp_path: Path) -> None:
    """No two logs begin with so many equal bytes by chance; newer lines need not wait."""
    folder = Folder(tmp_path)
    arrived = read_and_packed(folder, SAME_LINES)
    append(folder.live, b"2\n")

    assert arrived + joined(folder.drain()) == SAME_LINES + b"1\n" + SAME_LINES + b"2\n"


def test_a_packed_file_without_a_byte_holds_nothing_up(tmp_path: Path) -> None:
    """Whatever it is, there is nothing to read."""
    folder = Folder(tmp_path)
    arrived = read_and_packed(folder, b"")
    append(folder.live, b"2\n")

    assert arrived + joined(folder.read()) == b"1\n2\n"


def test_a_header_that_was_renamed_while_its_folder_was_listed_is_no_copy_of_the_next_log(
    header_alone: Folder,
) -> None:
    """The listing shows the new log, and not yet the one before it."""
    folder = header_alone
    append(folder.live, b"2\n")
    arrived = joined(folder.read())
    folder.live.with_name("hidden").rename(folder.live.with_name("app.log.1"))

    assert sorted((arrived + joined(folder.drain())).splitlines(keepends=True)) == sorted(
        [HEADER, HEADER, b"2\n"]
    )
