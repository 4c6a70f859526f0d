"""What rotators do between two looks, or while no shipper runs: nothing is lost, nor named so."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from log_chain import Folder, joined
from logpipeline.checksum import extend
from logpipeline_shipper.adoption import HELD_S, Adoption
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.opening import open_reader
from logpipeline_shipper.files.sources import HostSources
from logpipeline_shipper.intents import Key

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


def test_what_is_packed_slowly_into_another_folder_is_no_log_of_its_own(tmp_path: Path) -> None:
    """Half of a packed file tells nothing; it is waited for as long as it grows."""
    folder = Folder(tmp_path / "logs")
    append(folder.live, HEADER + os.urandom(4096).hex().encode() + b"\n")
    folder.drain()
    chains = {Key("h", str(folder.live)): folder.chain}
    now_s = 0.0
    adoption = Adoption(lambda: chains, lambda: (), lambda: now_s)
    old = tmp_path / "old" / "app.log.1"
    old.parent.mkdir()
    folder.live.rename(old)
    packed, data = old.with_name("app.log.1.gz"), gzip.compress(old.read_bytes())
    host = HostSources(host="h", include=(f"{old.parent}/**",))
    discovery = Discovery([host], skipped=lambda path, reason: None)

    def owner() -> list[str]:
        (listing,) = [
            each for each in discovery.scan() if packed in [file.path for file in each.files]
        ]
        found = adoption.sort(Key("h", listing.id.source), listing)
        kept = ["itself"] if packed in [file.path for file in found.listing.files] else []
        lent = [file.path for file in adoption.of(Key("h", str(folder.live)))]
        return kept + (["the log"] if packed in lent else [])

    for end in range(1, len(data), len(data) // 8):
        packed.write_bytes(data[:end])
        now_s += 0.9 * HELD_S
        assert "itself" not in owner(), end
    packed.write_bytes(data)
    old.unlink()
    folder.look()
    assert owner() == ["the log"]
