"""A new file is compared with the sources alone that its name may come from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from components.log_chain import GRACE_S, HEADER, Folder, append, listings, pack
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.file_owners import FileOwners
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.file_identity import Resemblance
from logpipeline_shipper.files.listing import Listing, ScanWatermark
from logpipeline_shipper.files.reader import PlainReader

SOURCES = 300


def test_a_file_is_not_compared_with_those_of_other_names(tmp_path: Path) -> None:
    """However many there are: of 10,000 files at once, each would be looked at 10,000 times."""
    asked: list[Key] = []
    owners = FileOwners(asked.append, lambda key: False, lambda: 0.0, ScanWatermark())
    for number in range(SOURCES):
        (tmp_path / f"{number:05}.log").write_bytes(b"a line\n")
    for listing in listings(tmp_path):
        key = Key("h", listing.id.source)
        assert owners.sort(key, listing).listing == listing
        owners.claim(key, [file.identity for file in listing.files])

    assert len(asked) <= SOURCES


@pytest.mark.parametrize(
    ("name", "is_asked"), [("app-1.log", True), ("ap.log", False), ("my-app.log", False)]
)
def test_a_name_that_begins_as_another_one_may_come_from_it(
    tmp_path: Path, name: str, *, is_asked: bool
) -> None:
    """What stands before the first dot is kept by rotators; sources that are forgotten, and those
    of other hosts, are not asked.
    """
    asked: list[Key] = []
    owners = FileOwners(asked.append, lambda key: False, lambda: 0.0, ScanWatermark())
    known, forgotten = Key("h", "/logs/app.log"), Key("h", "/logs/app.txt")
    for key in (known, forgotten, Key("other", "/logs/app.log")):
        owners.claim(key, ())
    owners.keep_only({known, Key("other", "/logs/app.log")})
    (tmp_path / name).write_bytes(b"a line\n")
    (listing,) = listings(tmp_path)
    own = Key("h", listing.id.source)
    owners.sort(own, listing)

    assert set(asked) - {own} == ({known} if is_asked else set())


@pytest.mark.parametrize("is_own", [True, False])
def test_a_packed_file_is_compared_with_its_own_source_before_its_namesakes(
    tmp_path: Path, *, is_own: bool
) -> None:
    """Where each of 1,000 folders has a log of the same name, all are rotated in one night."""
    asked: list[Key] = []
    folder = Folder(tmp_path)
    append(folder.live, b"".join(b"a line, number %d\n" % number for number in range(1000)))
    folder.drain()
    key = Key("h", str(folder.live))

    def chain_of(other: Key) -> Chain | None:
        asked.append(other)
        return folder.chain if other == key else None

    owners = FileOwners(chain_of, lambda key: False, lambda: 0.0, ScanWatermark())
    for number in range(SOURCES):
        owners.claim(Key("h", f"/logs/{number}/app.log"), ())
    data = folder.live.read_bytes()
    pack(tmp_path / "app.log.1.gz", data if is_own else b"another line\n" + data)
    folder.live.unlink()
    (listing,) = listings(tmp_path)

    assert owners.sort(key, listing).listing.files == listing.files
    assert (len(asked) <= 5) is is_own


def test_a_copy_of_a_log_that_was_cut_off_is_its_own_at_once(tmp_path: Path) -> None:
    """The file is where it was, so no other name leads to these bytes. One that was renamed is
    waited for.
    """
    folder = Folder(tmp_path / "logs")
    append(folder.live, b"one\n")
    folder.read()
    copy = Path(shutil.copy(folder.live, tmp_path / "copy"))
    assert resemblance(folder, copy) is Resemblance.COPIES

    os.truncate(folder.live, 0)
    assert resemblance(folder, copy) is Resemblance.CONTINUES

    folder.live.write_bytes(b"one\n")
    folder.live.rename(tmp_path / "elsewhere")
    assert resemblance(folder, copy) is Resemblance.AWAITS


@pytest.fixture
def gone(tmp_path: Path) -> tuple[Folder, FileOwners, Key]:
    """A log of which a header was read, and whose file is gone, with the owners of files."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, HEADER)
    folder.read()
    folder.chain.release()
    folder.live.unlink()
    folder.look()
    log = Key("h", str(folder.live))
    owners = FileOwners(
        lambda key: folder.chain if key == log else None,
        lambda key: False,
        lambda: folder.now_s,
        ScanWatermark(),
    )
    owners.claim(log, ())
    return folder, owners, log


def found_in(old: Path, *names: str) -> list[tuple[Key, Listing]]:
    """Pack files with the same first line, the oldest first, and return what a look at them finds,
    by source.
    """
    old.mkdir()
    for number, name in enumerate(names):
        pack(old / name, HEADER + b"%d\n" % number)
        os.utime(old / name, (number, number))
    found = sorted(listings(old), key=lambda each: each.id.source)
    return [(Key("h", each.id.source), each) for each in found]


def test_of_two_files_that_begin_alike_the_older_one_continues_the_log(
    tmp_path: Path, gone: tuple[Folder, FileOwners, Key]
) -> None:
    """Also where the time for which the log's own file is waited for ends between the two looks."""
    folder, owners, log = gone
    older, younger = found_in(tmp_path / "old", "app-1.log.gz", "app-2.log.gz")
    owners.sort(*older)
    owners.sort(*younger)

    folder.now_s += 2 * GRACE_S - 0.1
    owners.sort(*older)
    folder.now_s += 0.2
    owners.sort(*younger)
    assert owners.of(log) == ()

    owners.sort(*older)
    assert owners.of(log) == older[1].files
    assert owners.sort(*younger).listing.files == ()


def test_at_the_end_files_that_begin_alike_are_no_logs_of_their_own(
    tmp_path: Path, gone: tuple[Folder, FileOwners, Key]
) -> None:
    """They have one name, and were waited for until then."""
    folder, owners, log = gone
    ((key, listing),) = found_in(tmp_path / "old", "app.log.2.gz", "app.log.1.gz")
    assert owners.sort(key, listing).listing.files == ()

    folder.chain.end()
    owners.end()

    assert owners.sort(key, listing).listing.files == ()
    assert [file.path for file in owners.of(log)] == [file.path for file in listing.files]


def resemblance(folder: Folder, path: Path) -> Resemblance:
    """Return how the file at *path* resembles the log in *folder*, as it was listed last."""
    content = PlainReader(os.open(path, os.O_RDONLY))
    try:
        return folder.chain.resemblance(content, folder.now_s)
    finally:
        content.close()
