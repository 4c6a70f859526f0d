"""What rotators do between two looks, or while no shipper runs: nothing is lost, nor named so."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from components.log_chain import (
    GRACE_S,
    HEADER,
    Folder,
    OldFolder,
    append,
    copytruncate,
    joined,
    pack,
)
from logpipeline_shipper import file_owners
from logpipeline_shipper.file_owners import HELD_GROWING_S, HELD_S
from logpipeline_shipper.files.chunk import Chunk
from logpipeline_shipper.files.directory_scan import chain_files, open_folder
from logpipeline_shipper.files.generation import ALIKE_BYTES_MAX, Generation
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Unreadable, open_reader
from logpipeline_shipper.files.reader import Reader


def write_and_read_most(folder: Folder) -> tuple[bytes, list[Chunk]]:
    """Return what the log holds now, and all of it that was read: not its last line."""
    data = HEADER + b"".join(b"%d\n" % number for number in range(9999))
    append(folder.live, data[:-5])
    read = folder.drain()
    append(folder.live, data[-5:])
    return data, read


def test_what_a_packed_copy_has_more_is_read_after_a_restart(tmp_path: Path) -> None:
    """The log was written, copied, packed and cut while no shipper ran."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    append(folder.live, b"2\n")
    pack(folder.live.with_name("app.log.1.gz"), folder.live.read_bytes())
    os.truncate(folder.live, 0)
    append(folder.live, HEADER + b"3\n")

    again = Folder(tmp_path, saved=folder.chain.saved())
    assert joined(again.drain()) == b"2\n" + HEADER + b"3\n"


def test_a_log_that_was_cut_is_not_taken_for_what_was_sent_before_a_kill(tmp_path: Path) -> None:
    """It begins alike and is longer; only the note of what was sent tells them apart."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER)
    folder.look()
    append(folder.live, b"1\n")
    (chunk,) = folder.read_on()
    birth = folder.chain.birth(chunk.generation)
    known = Generation.restore(birth[:4] + Generation(chunk.generation).saved()[4:5] + birth[5:])
    known.was_sent(chunk.end, chunk.checksums.after)
    assert is_file_of(folder, known)

    os.truncate(folder.live, 0)
    append(folder.live, HEADER + b"2\n3\n")
    known.is_verified = False

    assert not is_file_of(folder, known)


def is_file_of(folder: Folder, known: Generation) -> bool:
    """Return whether the log is the file of *known*."""
    (listing,) = folder.discovery.scan()
    content = open_reader(listing.files[-1], follow_link=False)
    try:
        return known.verify(content)
    finally:
        content.close()


def test_a_length_from_before_a_cut_is_not_missed(tmp_path: Path) -> None:
    """The listing is older than the cut, and tells a length that the log has no more."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n2\n")
    folder.read()
    append(folder.live, b"3\n")
    (old,) = folder.discovery.scan()
    copytruncate(folder.live, folder.live.with_name("app.log.1"))
    append(folder.live, HEADER + b"4\n")
    folder.take(old)
    os.truncate(folder.live, 0)
    append(folder.live, b"5\n")
    folder.drain()

    lost = [(each.start, each.end) for each in folder.chain.take_losses()]
    assert lost == [(0, len(HEADER + b"4\n"))]


@pytest.mark.parametrize("is_seen_by_reading", [True, False])
def test_a_length_from_before_a_cut_is_not_that_of_the_new_file(
    tmp_path: Path, is_seen_by_reading: bool
) -> None:
    """A listing of before the cut comes again, or late, as when a copy turns up in another folder.
    The new file seems to have been longer, and to have lost what it never had.
    """
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n2\n3\n")
    read = folder.drain()
    (old,) = folder.discovery.scan()
    os.utime(folder.live, ns=(0, old.files[-1].mtime_ns + 1))
    copytruncate(folder.live, folder.live.with_name("app.log.1"))
    append(folder.live, HEADER)
    os.utime(folder.live, ns=(0, old.files[-1].mtime_ns + 2))
    read += folder.read_on() if is_seen_by_reading else folder.read()
    folder.take(old)
    read += folder.drain()
    copytruncate(folder.live, folder.live.with_name("app.log.2"))
    append(folder.live, b"4\n")

    assert joined(read + folder.drain()) == HEADER + b"1\n2\n3\n" + HEADER + b"4\n"
    assert folder.chain.take_losses() == []


def test_a_copy_of_a_log_that_is_new_itself_brings_nothing(tmp_path: Path) -> None:
    """Seen for the first time, the log and its copy are one file's lines."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    shutil.copyfile(folder.live, folder.live.with_name("app.log.1"))
    append(folder.live, b"2\n")

    assert joined(folder.drain()) == HEADER + b"1\n2\n"


@pytest.mark.parametrize("write", [Path.write_bytes, pack], ids=["plain", "packed"])
def test_a_file_that_begins_with_all_of_a_former_one_is_read(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    """Its log was written and rotated while no shipper ran; a former log had a header alone."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER)
    folder.drain()
    folder.live.unlink()
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    ending = ".gz" if write is pack else ""
    write(folder.live.with_name(f"app.log.2{ending}"), folder.live.read_bytes())
    write(folder.live.with_name(f"app.log.1{ending}"), HEADER + b"2\n")
    folder.live.unlink()
    append(folder.live, HEADER + b"3\n")

    again = Folder(tmp_path, saved=folder.chain.saved())
    assert joined(again.drain()) == HEADER + b"2\n" + HEADER + b"3\n"


@pytest.mark.parametrize("remove", [Path.unlink, partial(os.truncate, length=0)])
def test_what_a_late_packed_copy_has_more_is_read(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    """The log had ended as far as was seen. A long one does not begin like another by chance."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n" * ALIKE_BYTES_MAX)
    folder.drain()
    data = folder.live.read_bytes()
    remove(folder.live)
    folder.drain()
    pack(folder.live.with_name("app.log.1.gz"), data + b"2\n")

    assert joined(folder.drain()) == b"2\n"


def test_a_log_that_is_packed_slowly_and_then_removed_is_read_once(tmp_path: Path) -> None:
    """It has no other name meanwhile, and what the packed file holds cannot be told yet."""
    folder = Folder(tmp_path)
    data, read = write_and_read_most(folder)
    packed, target = gzip.compress(data), folder.live.with_name("app.log.1.gz")
    for end in range(0, len(packed), len(packed) // 8):
        target.write_bytes(packed[:end])
        read += folder.read()
    target.write_bytes(packed)
    read += folder.read()
    folder.live.unlink()
    append(folder.live, HEADER + b"1\n")

    assert joined(read + folder.drain()) == data + HEADER + b"1\n"


@pytest.mark.parametrize("scans", [1, 5])
def test_a_log_whose_packer_ended_during_a_look_is_not_missed(tmp_path: Path, scans: int) -> None:
    """The next listing shows what became of it, however late it comes."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    append(folder.live, b"2\n")
    folder.look()
    append(folder.live, b"3\n")
    plain, packed = folder.live.with_name("app.log.1"), folder.live.with_name("app.log.1.gz")
    folder.live.rename(plain)
    packed.touch()
    append(folder.live, HEADER + b"4\n")

    again = Folder(tmp_path, saved=folder.chain.saved())
    (old,) = again.discovery.scan()
    pack(packed, plain.read_bytes())
    plain.unlink()
    again.take(old)
    again.now_s += scans * GRACE_S
    assert again.read_on() == []
    assert joined(again.drain()) == b"2\n3\n" + HEADER + b"4\n"
    assert again.chain.take_losses() == []


def test_a_log_that_a_listing_lacks_is_not_missed_before_the_next_one(tmp_path: Path) -> None:
    """It was renamed while the folder was read."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    append(folder.live, b"2\n")
    again = Folder(tmp_path, saved=folder.chain.saved())
    (whole,) = again.discovery.scan()
    again.take(replace(whole, files=()))
    again.now_s += 1.5 * GRACE_S

    assert again.read_on() == []
    assert joined(again.drain()) == b"2\n"
    assert again.chain.take_losses() == []


def test_what_was_read_of_a_log_that_is_gone_is_read_again_from_its_copy(tmp_path: Path) -> None:
    """It was not acknowledged yet, and the copy is seen a moment later."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    chain = folder.look()
    assert chain.read(folder.now_s) is not None
    chain.release()
    data = folder.live.read_bytes()
    folder.live.unlink()
    folder.look()
    assert not chain.can_rewind()
    chain.rewind()
    pack(folder.live.with_name("app.log.1.gz"), data)

    assert joined(folder.drain()) == data
    assert chain.take_losses() == []


def test_a_log_that_was_packed_before_it_could_be_opened_is_not_missed(tmp_path: Path) -> None:
    """Of its bytes nothing is known but how many there were."""
    folder = Folder(tmp_path)
    data = HEADER + b"1\n"
    append(folder.live, data)
    (listing,) = folder.discovery.scan()
    pack(folder.live.with_name("app.log.1.gz"), data)
    folder.live.unlink()
    append(folder.live, HEADER + b"2\n")
    folder.take(listing)

    assert joined(folder.drain()) == data + HEADER + b"2\n"
    assert (folder.chain.take_losses(), folder.chain.unseen_generations) == ([], 0)


def test_a_log_that_is_put_aside_and_copied_slowly_is_read_once(tmp_path: Path) -> None:
    """As logrotate's `renamecopy` does it."""
    folder = Folder(tmp_path)
    data, read = write_and_read_most(folder)
    aside, target = folder.live.with_name("app.log.tmp"), folder.live.with_name("app.log.1")
    folder.live.rename(aside)
    append(folder.live, HEADER + b"1\n")
    for end in range(0, len(data), len(data) // 8):
        target.write_bytes(data[:end])
        read += folder.drain()
    target.write_bytes(data)
    read += folder.read()
    aside.unlink()

    assert joined(read + folder.drain()) == data + HEADER + b"1\n"
    assert folder.chain.take_losses() == []


def test_a_temporary_file_that_was_no_log_is_not_read(tmp_path: Path) -> None:
    """A program writes what will be the log under another name, and renames it."""
    folder = Folder(tmp_path)
    append(folder.live, b"1\n")
    read = folder.drain()
    aside = folder.live.with_name("app.log.tmp")
    append(aside, b"2\n")
    assert folder.drain() == []
    aside.rename(folder.live)

    assert joined(read + folder.drain()) == b"1\n2\n"


def test_packed_copies_of_a_log_that_goes_on_bring_nothing(tmp_path: Path) -> None:
    """As logrotate's `copy` makes them, with `compress`."""
    folder = Folder(tmp_path)
    plain, packed = folder.live.with_name("app.log.1"), folder.live.with_name("app.log.1.gz")
    read = []
    for number in range(3):
        append(folder.live, b"".join(b"%d %d\n" % (number, line) for line in range(99)))
        read += folder.drain()
        if packed.exists():
            packed.rename(folder.live.with_name("app.log.2.gz"))
        shutil.copyfile(folder.live, plain)
        read += folder.read()
        pack(packed, plain.read_bytes())
        plain.unlink()
        read += folder.drain()

    assert joined(read) == folder.live.read_bytes()


def test_what_is_packed_slowly_into_another_folder_is_no_log_of_its_own(tmp_path: Path) -> None:
    """Half of a packed file tells nothing; it is waited for as long as it grows."""
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER + os.urandom(4096).hex().encode() + b"\n")
    folder.log.drain()
    old, packed = folder.path / "app.log.1", folder.path / "app.log.1.gz"
    folder.log.live.rename(old)
    data = gzip.compress(old.read_bytes())

    for end in range(1, len(data), len(data) // 8):
        packed.write_bytes(data[:end])
        folder.log.now_s += 0.9 * HELD_S
        assert folder.owner(packed) != "itself", end
    packed.write_bytes(data)
    old.unlink()
    folder.log.look()
    assert folder.owner(packed) == "log"


def test_what_is_copied_slowly_into_another_folder_is_no_log_of_its_own(tmp_path: Path) -> None:
    """As logrotate's `copytruncate` with `olddir` does it: a large log takes longer than is waited
    for one that does not grow.
    """
    folder = OldFolder(tmp_path)
    data, _ = write_and_read_most(folder.log)
    folder.log.drain()
    copy = folder.path / "app.log.1"

    for end in range(1, len(data), len(data) // 8):
        copy.write_bytes(data[:end])
        folder.log.now_s += 0.9 * HELD_S
        assert folder.owner(copy) == "", end
    copy.write_bytes(data)
    os.truncate(folder.log.live, 0)
    append(folder.log.live, HEADER + b"1\n")
    folder.log.look()
    assert folder.owner(copy) == "log"


def test_a_growing_file_that_cannot_be_read_is_soon_a_log_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own source says why. The refusal is a fake: tests may run as root, who may read all."""
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER)
    folder.log.drain()
    secret = folder.path / "app-secret.log"

    def refuse(file: ChainFile, *, follow_link: bool) -> Reader:
        raise Unreadable("EACCES")

    monkeypatch.setattr(file_owners, "open_reader", refuse)
    owners = []
    for _ in range(4):
        append(secret, b"a line\n")
        owners.append(folder.owner(secret))
        folder.log.now_s += 0.4 * HELD_S

    assert owners == ["", "", "", "itself"]


def test_a_copy_of_a_log_that_was_cut_before_is_known_by_its_own_time(tmp_path: Path) -> None:
    """It was packed with the time of the log, as gzip does it: its length is not unpacked again at
    each look.
    """
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    os.truncate(folder.live, 0)
    append(folder.live, b"2\n")
    read = folder.drain()
    seen, packed = folder.live.stat(), folder.live.with_name("app.log.1.gz")
    pack(packed, folder.live.read_bytes())
    os.utime(packed, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    folder.live.unlink()
    folder.drain()
    (listed,) = folder.discovery.scan()
    (known,) = map(Generation.restore, folder.chain.saved()["generations"])

    assert joined(read) == b"2\n"
    assert known.stamp == (listed.files[0].size, listed.files[0].mtime_ns)


def test_a_second_log_with_the_same_lines_is_read_in_the_end(tmp_path: Path) -> None:
    """It grows as long as the first one does, and looks like a copy that is being made."""
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER)
    folder.log.drain()
    twin = folder.path / "app-twin.log"
    owners, began_s = [], folder.log.now_s
    while folder.log.now_s <= began_s + HELD_GROWING_S:
        append(folder.log.live, b"a line\n")
        twin.write_bytes(folder.log.live.read_bytes())
        owners.append(folder.owner(twin))
        folder.log.now_s += HELD_S / 2

    assert set(owners[:-1]) == {""}
    assert owners[-1] == "itself"


def test_what_an_undecided_file_may_hold_is_not_missed(tmp_path: Path) -> None:
    """The log was cut before its last lines were acknowledged; its copy is still being written."""
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER)
    folder.log.drain()
    append(folder.log.live, b"1\n2\n")
    folder.log.look()
    copy = folder.path / "app.log.1"
    copy.write_bytes(HEADER)
    assert folder.owner(copy) == ""
    os.truncate(folder.log.live, 0)
    append(folder.log.live, b"3\n")
    read = folder.log.drain()
    assert folder.log.chain.take_losses() == []

    copy.write_bytes(HEADER + b"1\n2\n")
    assert folder.owner(copy) == "log"
    read += folder.lend()
    assert sorted(joined(read).splitlines()) == [b"1", b"2", b"3"]
    assert folder.log.chain.take_losses() == []


def test_a_packed_log_is_not_taken_for_a_copy_of_a_live_one_that_was_renamed(
    tmp_path: Path,
) -> None:
    """The live log that a look has shown is not there any more: its lines wait until the next look
    tells what the packed file is.
    """
    folder = Folder(tmp_path)
    older, packed = tmp_path / "app.log.1", tmp_path / "app.log.1.gz"
    older.write_bytes(b"one\n")
    folder.live.write_bytes(b"two\n")
    packed.write_bytes(gzip.compress(b"one\n")[:9])
    (listing,) = folder.discovery.scan()
    with packed.open("wb") as file:
        file.write(gzip.compress(b"one\n"))
    older.unlink()
    folder.take(listing)  # the older one cannot be opened: the live one waits
    assert folder.read_on() == []
    (listing,) = folder.discovery.scan()
    folder.live.rename(older)
    folder.live.write_bytes(b"three\n")
    folder.take(listing)
    early = folder.read_on()
    packed.rename(tmp_path / "app.log.2.gz")

    assert joined(early + folder.drain()) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_folder_of_many_files_that_is_away_for_a_while_brings_nothing_twice(
    tmp_path: Path, is_restarted: bool
) -> None:
    """A disk that is mounted again, or a look at it that comes late: however many files it has."""
    folder = Folder(tmp_path / "logs", cri=True)
    for number in range(150):
        line = b"2026-11-23T10:00:00.%09dZ stdout F line %d\n" % (number, number)
        append(folder.live, line)
        folder.read()
        folder.live.rename(folder.live.with_name(f"0.log.20261123-{100000 + number}"))
    folder.drain()
    aside = tmp_path / "aside"
    folder.path.rename(aside)
    folder.drain()
    if is_restarted:
        folder = Folder(tmp_path / "logs", cri=True, saved=folder.chain.saved())
        folder.path.rmdir()
    aside.rename(folder.path)

    assert joined(folder.drain()) == b""
    assert folder.chain.take_losses() == []


@pytest.mark.parametrize("begun", [b"", HEADER[:5], HEADER], ids=["empty", "part", "line"])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "seen"])
@pytest.mark.parametrize("is_first", [True, False], ids=["old-first", "log-first"])
def test_a_log_that_was_just_begun_is_read_once_when_packed_into_another_folder(
    tmp_path: Path, begun: bytes, is_read: bool, is_first: bool
) -> None:
    """All of its lines came between two looks, as did its rotation."""
    folder = OldFolder(tmp_path)
    append(folder.log.live, begun)
    folder.log.look()
    read = folder.log.read_on() if is_read else []
    append(folder.log.live, (HEADER + b"1\n")[len(begun) :])
    packed = folder.path / "app.log.1.gz"
    pack(packed, folder.log.live.read_bytes())
    folder.log.live.unlink()
    append(folder.log.live, HEADER + b"2\n")
    owner = folder.owner(packed) if is_first else ""
    read += folder.log.read()
    owner = owner or folder.owner(packed)
    read += folder.lend() + folder.log.drain()

    apart = gzip.decompress(packed.read_bytes()) if owner == "itself" else b""
    assert apart + joined(read) == HEADER + b"1\n" + HEADER + b"2\n"


@pytest.mark.parametrize("is_rising", [True, False], ids=["log4j2", "logrotate"])
def test_the_times_of_numbered_files_show_which_is_the_oldest(
    tmp_path: Path, *, is_rising: bool
) -> None:
    """log4j2 gives the youngest the next number, logrotate the number 1."""
    for age, number in enumerate([1, 2, 10] if is_rising else [10, 2, 1]):
        path = tmp_path / f"app.log.{number}"
        path.write_text(f"{age}\n")
        os.utime(path, (1_790_000_000 + age, 1_790_000_000 + age))
    (tmp_path / "app.log").write_text("3\n")
    names = {path.name for path in tmp_path.iterdir()}

    with open_folder(tmp_path, tmp_path) as folder:
        [files] = chain_files(folder, names, follow_link=False).values()

    assert [file.path.read_text() for file in files] == ["0\n", "1\n", "2\n", "3\n"]


def test_the_rest_of_a_copied_log_comes_before_what_the_emptied_one_holds(tmp_path: Path) -> None:
    """A read meets the new lines before a look at the folder shows the copy."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    read = folder.drain()
    append(folder.live, b"two\n")
    copytruncate(folder.live, tmp_path / "app.log.1")
    append(folder.live, b"three\n")

    early = folder.read_on()

    assert joined(read + early + folder.drain()) == b"one\ntwo\nthree\n"


def test_what_a_program_writes_on_into_its_removed_log_is_read(tmp_path: Path) -> None:
    """`rm`, or `rotate 0` without a word to the program: its lines are read until it closes the
    file, those of the new log meanwhile, and a line in two writes is one.
    """
    folder = Folder(tmp_path)
    with folder.live.open("ab", buffering=0) as log:
        log.write(b"one\n")
        chunks = folder.read()
        folder.live.unlink()
        chunks += folder.drain()
        log.write(b"two\nth")
        append(folder.live, b"another\n")
        chunks += folder.drain()
        log.write(b"ree\nfo")
        chunks += folder.drain()
    chunks += folder.drain()

    removed = chunks[0].generation
    assert joined([each for each in chunks if each.generation == removed]) == b"one\ntwo\nthree\nfo"
    assert joined([each for each in chunks if each.generation != removed]) == b"another\n"
    assert all(each.data.endswith(b"\n") for each in chunks[:-1])
    assert folder.chain.identities() == [seen_identity(folder.live)]
    assert (folder.chain.missing_bytes, folder.chain.unseen_generations) == (0, 0)


def test_a_removed_log_that_is_written_for_too_long_is_told(tmp_path: Path) -> None:
    """What comes later is nowhere, and nobody knows how much it is."""
    folder = Folder(tmp_path, deleted_age_s=60.0)
    with folder.live.open("ab", buffering=0) as log:
        log.write(b"one\n")
        folder.read()
        folder.live.unlink()
        append(folder.live, b"another\n")
        folder.drain()
        folder.now_s += 61.0
        folder.drain()
        log.write(b"two\n")

        assert joined(folder.drain()) == b""
    assert (folder.chain.missing_bytes, folder.chain.unseen_generations) == (0, 1)


def seen_identity(path: Path) -> tuple[int, int, int]:
    """Return the identity of *path* as a listing shows it."""
    with open_folder(path.parent, path.parent) as folder:
        [[file]] = chain_files(folder, {path.name}, follow_link=False).values()
    return file.identity
