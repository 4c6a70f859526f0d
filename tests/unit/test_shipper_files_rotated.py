"""What rotators do between two looks, or while no shipper runs: nothing is lost, nor named so."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from log_chain import Folder, joined
from logpipeline.checksum import extend
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.opening import open_reader

HEADER = b"# number text\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def copytruncate(live: Path, target: Path) -> None:
    shutil.copyfile(live, target)
    os.truncate(live, 0)


def test_what_a_packed_copy_has_more_is_read_after_a_restart(tmp_path: Path) -> None:
    """The log was written, copied, packed and cut while no shipper ran."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    folder.drain()
    append(folder.live, b"2\n")
    folder.live.with_name("app.log.1.gz").write_bytes(gzip.compress(folder.live.read_bytes()))
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
    known.was_sent(chunk.end, extend(chunk.checksum, chunk.data))
    assert is_in(folder, known)

    os.truncate(folder.live, 0)
    append(folder.live, HEADER + b"2\n3\n")
    known.is_verified = False

    assert not is_in(folder, known)


def is_in(folder: Folder, known: Generation) -> bool:
    """Return whether the log is the file of *known*."""
    (listing,) = folder.discovery.scan()
    content = open_reader(listing.files[-1], follow_link=False)
    try:
        return known.is_in(content)
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


def test_a_copy_of_a_log_that_is_new_itself_brings_nothing(tmp_path: Path) -> None:
    """Seen for the first time, the log and its copy are one file's lines."""
    folder = Folder(tmp_path)
    append(folder.live, HEADER + b"1\n")
    shutil.copyfile(folder.live, folder.live.with_name("app.log.1"))
    append(folder.live, b"2\n")

    assert joined(folder.drain()) == HEADER + b"1\n2\n"
