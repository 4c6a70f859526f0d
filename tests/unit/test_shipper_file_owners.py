"""A new file is compared with the sources alone that its name may come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.log_chain import Folder, append, pack
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.file_owners import FileOwners
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.listing import HostSources, Listing, ScanWatermark

SOURCES = 300


def listings(folder: Path) -> list[Listing]:
    host = HostSources(host="h", include=(f"{folder}/*.log*",))
    return Discovery([host], skipped=lambda path, reason: None).scan()


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
