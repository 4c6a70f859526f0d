"""A copy of a log brings what the log lost, and nothing else: whatever happens to the log while the
copy is made and looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from components.log_chain import HEADER, Folder, OldFolder, append, copytruncate, joined, pack
from logpipeline.checksum import NOTHING
from logpipeline_shipper.file_owners import HELD_S
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import open_reader
from logpipeline_shipper.files.reader import Part, Reader, Recent
from logpipeline_shipper.files.tail import Tail

# More files than are opened to tell what a copy is.
LOOKS_MAX = 6


def pack_in_place(path: Path) -> None:
    """Do what gzip does, which keeps the time of the file."""
    time_ns = path.stat().st_mtime_ns
    packed = path.with_name(f"{path.name}.gz")
    pack(packed, path.read_bytes())
    os.utime(packed, ns=(time_ns, time_ns))
    path.unlink()


class CutDuringLook:
    """Lends files to the matcher, and has *cut* done before the one with the number *at*."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, cut: Callable[[], None]) -> None:
        self._at, self._cut = at, cut
        self.opened, self._is_cut = 0, False
        monkeypatch.setattr(Tail, "open_file", self._lent)

    def cut(self) -> None:
        """Have it done, where it was not yet."""
        if not self._is_cut:
            self._is_cut = True
            self._cut()

    def _lent(self, file: ChainFile) -> Reader:
        if self.opened == self._at:
            self.cut()
        self.opened += 1
        return open_reader(file, follow_link=False)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("at", range(LOOKS_MAX))
def test_a_log_that_is_cut_while_its_copy_is_looked_at_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_packed: bool
) -> None:
    """At whatever moment: a copy that is compared with what the log holds by then is unlike it."""
    folder = Folder(tmp_path)
    data = HEADER + b"1\n2\n"
    append(folder.live, data)
    read = folder.drain()
    if is_packed:
        pack(folder.live.with_name("app.log.1.gz"), data)
    else:
        shutil.copyfile(folder.live, folder.live.with_name("app.log.1"))

    def cut() -> None:
        os.truncate(folder.live, 0)
        append(folder.live, HEADER)

    looks = CutDuringLook(monkeypatch, at, cut)
    read += folder.read()
    assert at < LOOKS_MAX - 1 or looks.opened < at, "there are moments beyond"
    looks.cut()
    read += folder.drain()

    assert joined(read) == data + HEADER
    assert folder.chain.take_losses() == []


@pytest.mark.parametrize("at", range(LOOKS_MAX))
def test_a_log_that_is_cut_while_a_copy_elsewhere_is_looked_at_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The copy, which has not all yet, is not taken for a log of its own."""
    folder = OldFolder(tmp_path)
    data = HEADER + b"1\n2\n"
    append(folder.log.live, data)
    read = folder.log.drain()
    copy = folder.path / "app.log.1"
    copy.write_bytes(data[:-2])

    def cut() -> None:
        copy.write_bytes(data)
        os.truncate(folder.log.live, 0)
        append(folder.log.live, HEADER)

    looks = CutDuringLook(monkeypatch, at, cut)
    owners = {folder.owner(copy)}
    looks.cut()
    read += folder.log.drain()
    owners.add(folder.owner(copy))
    read += folder.lend()

    assert "itself" not in owners
    assert joined(read) == data + HEADER


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("seen", ["", "listed", "read", "listed and read"])
def test_what_is_written_behind_a_copy_does_not_make_it_a_log(
    tmp_path: Path, seen: str, is_packed: bool
) -> None:
    """The copy lacks what the log got before it was cut. What of that was read arrives; what was
    seen, and not read, is named.
    """
    folder = Folder(tmp_path)
    copy, data = folder.live.with_name("app.log.1"), HEADER + b"1\n2\n"
    append(folder.live, data)
    read = folder.drain()
    shutil.copyfile(folder.live, copy)
    append(folder.live, b"behind\n")
    if "listed" in seen:
        folder.look()
    if "read" in seen:
        read += folder.read_on()
    arrived = joined(read)
    os.truncate(folder.live, 0)
    append(folder.live, HEADER)
    if is_packed:
        pack_in_place(copy)
    read += folder.drain()

    assert joined(read) == arrived + HEADER
    lost = [(each.start, each.end) for each in folder.chain.take_losses()]
    assert lost == [(len(data), len(data) + 7)] * (seen == "listed" and not is_packed)


def test_a_copy_that_lacks_what_was_read_is_known_when_it_is_packed_later(tmp_path: Path) -> None:
    """Logrotate's `delaycompress` packs it a rotation later; the shipper was started again, and has
    forgotten what it had read then.
    """
    folder = Folder(tmp_path)
    copy = folder.live.with_name("app.log.1")
    append(folder.live, HEADER + b"1\n2\n")
    folder.drain()
    shutil.copyfile(folder.live, copy)
    append(folder.live, b"behind\n")
    folder.read()
    os.truncate(folder.live, 0)
    append(folder.live, b"3\n")
    assert joined(folder.drain()) == b"3\n"

    again = Folder(tmp_path, saved=folder.chain.saved())
    assert again.drain() == []
    pack_in_place(copy)
    assert again.drain() == []
    append(folder.live, b"4\n")
    assert joined(again.drain()) == b"4\n"


def test_a_short_run_that_begins_like_the_one_before_is_read(tmp_path: Path) -> None:
    """What was written later than the last line of a log is no copy of its first ones."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    written = folder.live.stat().st_mtime_ns
    folder.live.unlink()
    second = folder.live.with_name("app.log.1")
    append(second, HEADER)
    os.utime(second, ns=(written + 1, written + 1))
    append(folder.live, HEADER + b"3\n")

    assert joined(folder.drain()) == HEADER + HEADER + b"3\n"


def test_a_file_that_ends_like_a_log_and_begins_otherwise_is_no_copy(tmp_path: Path) -> None:
    """Equal lines stand before its end and before what was read last; all other bytes count too."""
    folder = Folder(tmp_path, recent=Recent(bytes_max=20))
    same = b"same\n" * 100
    append(folder.live, b"first 1\n" + same)
    read = folder.drain()
    other = folder.live.with_name("app.log.1")
    append(other, b"other 2\n" + same)
    append(folder.live, b"same\n")
    read += folder.read_on()
    os.truncate(folder.live, 0)
    append(folder.live, HEADER)
    read += folder.drain()

    assert b"other 2\n" + same in joined(read)


def test_what_was_read_last_is_bounded_and_whole() -> None:
    """The oldest is forgotten first, whosever it is; what is read again stands there once."""
    recent = Recent(bytes_max=10)
    recent.add("one", part(0, b"abc"))
    recent.add("one", part(3, b"def"))
    recent.add("one", part(3, b"defg"))
    assert [each.data for each in recent.of("one")] == [b"abc", b"defg"]
    recent.add("other", part(5, b"xyz"))
    assert [each.data for each in recent.of("one")] == [b"abc", b"defg"]
    recent.add("other", part(8, b"uvw"))
    assert [each.data for each in recent.of("one")] == [b"defg"]
    recent.add("other", part(50, b"later"))
    assert recent.of("one") == ()
    assert [each.offset for each in recent.of("other")] == [50]


def part(offset: int, data: bytes) -> Part:
    return Part(offset, NOTHING, data, written_ns=1)


def test_a_log_with_a_second_name_is_read_once(tmp_path: Path) -> None:
    """It is linked, or its folder is reached on two paths that are both included; nothing is told
    as lost when the shipper starts again.
    """
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER)
    assert joined(folder.lend()) == HEADER
    second = folder.path / "app.log"
    second.hardlink_to(folder.log.live)
    assert folder.owner(second) == "log"
    for number in range(3):
        append(folder.log.live, b"%d\n" % number)
        assert joined(folder.lend()) == b"%d\n" % number
        folder.log.restart()
    for _ in range(5):
        folder.lend()

    assert folder.log.chain.unseen_generations == 0


def test_a_packed_file_whose_original_was_removed_late_is_no_log_of_its_own(tmp_path: Path) -> None:
    """Its original stood beside it for nearly as long as a file is held. From then on it takes some
    listings to know that the original has no other name.
    """
    folder = OldFolder(tmp_path)
    append(folder.log.live, HEADER)
    folder.lend()
    old, packed = folder.path / "app.log.1", folder.path / "app.log.1.gz"
    folder.log.live.rename(old)
    append(folder.log.live, b"next\n")
    assert folder.owner(old) == "log"
    folder.lend()
    folder.log.chain.release()
    pack(packed, old.read_bytes())
    assert folder.owner(packed) == ""

    folder.log.now_s += 0.9 * HELD_S
    old.unlink()
    assert folder.owner(packed) == ""
    folder.lend()
    folder.log.now_s += 0.2 * HELD_S
    assert folder.owner(packed) == ""

    folder.log.now_s += HELD_S
    assert folder.owner(packed) == "log"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("passed_ns", [0, 10**9])
def test_the_rest_of_a_log_comes_first_that_is_copied_and_emptied_after_it_was_listed(
    tmp_path: Path, passed_ns: int, *, is_restarted: bool
) -> None:
    """The listing shows neither the copy nor, where no tick of the clock passed, another time."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    chunks = folder.drain()
    append(folder.live, b"two\n")
    if is_restarted:
        folder.restart()
    (listing,) = folder.discovery.scan()
    shutil.copyfile(folder.live, tmp_path / "app.log.1")
    os.truncate(folder.live, 0)
    append(folder.live, b"3\n")
    emptied_ns = listing.files[0].mtime_ns + passed_ns
    os.utime(folder.live, ns=(emptied_ns, emptied_ns))
    folder.take(listing)
    chunks += folder.read_on()

    assert joined(chunks + folder.drain()) == b"one\ntwo\n3\n"
    assert folder.chain.take_losses() == []


def test_an_unread_log_is_copied_emptied_and_longer_than_before_when_it_is_read(
    tmp_path: Path,
) -> None:
    """It was emptied before, when nothing could be sent, so that its length alone was looked at."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\n")
    chunks = folder.drain()
    copytruncate(folder.live, tmp_path / "app.log-20260921-141545")
    folder.look()
    append(folder.live, b"two\n")
    folder.look()
    copytruncate(folder.live, tmp_path / "app.log-20260921-141556")
    append(folder.live, b"three, which is longer\n")
    chunks += folder.read_on()

    assert joined(chunks + folder.drain()) == b"one\ntwo\nthree, which is longer\n"
    assert folder.chain.take_losses() == []
