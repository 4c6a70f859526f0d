"""A chain over the files of one folder, driven by hand: list, read, acknowledge, let time pass."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from logpipeline.redaction import NOTHING_REDACTED, Redactor
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.file_owners import FileOwners
from logpipeline_shipper.files.chain import Chain, Chunk
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import (
    HostSources,
    Listing,
    ScanWatermark,
    SourceWatermark,
    Watermark,
)
from logpipeline_shipper.files.open_file import DescriptorBudget
from logpipeline_shipper.files.tail import Outcome
from logpipeline_shipper.resend import within

GRACE_S = 2.0
HEADER = b"# number text\n"


def listings(folder: Path) -> list[Listing]:
    """Return what a look at *folder* finds now."""
    host = HostSources(host="h", include=(f"{folder}/*.log*",))
    return Discovery([host], skipped=lambda path, reason: None).scan()


class Folder:
    """The one source in *path*, and a chain that reads it."""

    def __init__(
        self,
        path: Path,
        *,
        cri: bool = False,
        saved: dict[str, Any] | None = None,
        read_from: Literal["beginning", "end"] = "beginning",
        skipped: Callable[[Path, str], None] = lambda path, reason: None,
        redactor: Redactor = NOTHING_REDACTED,
        **limits: Any,
    ) -> None:
        self.now_s = 100.0
        if cri:
            self.path = path / "pods" / "ns_pod_uid" / "box"
            host = HostSources(host="h", pods_dir=path / "pods")
            self.live = self.path / "0.log"
        else:
            self.path = path
            host = HostSources(host="h", include=(f"{path}/*.log",))
            self.live = path / "app.log"
        self.path.mkdir(parents=True, exist_ok=True)
        self.discovery = Discovery([host], skipped=skipped)
        self.limits = ReadLimits(
            batch_bytes=limits.pop("batch_bytes", 4096),
            line_bytes=limits.pop("line_bytes", 8192),
            grace_s=GRACE_S,
            descriptors=DescriptorBudget(limits.pop("open_files", 64)),
            **limits,
        )
        self.saved, self.read_from, self._redactor = saved, read_from, redactor
        self.scan_watermark = ScanWatermark()
        self.watermark: Watermark = self.scan_watermark
        self._chain: Chain | None = None
        self._listing: Listing | None = None

    @property
    def chain(self) -> Chain:
        """Return the chain; it is made at the first listing."""
        assert self._chain is not None
        return self._chain

    def restart(self) -> None:
        """Be a new process, which has what the former one saved."""
        self.saved = self.chain.saved()
        self.chain.release()
        self._chain = None

    def look(self) -> Chain:
        """Take in what files there are now."""
        found = self.discovery.scan()
        if found:
            self._listing = found[0]
        assert self._listing is not None
        listing = found[0] if found else Listing(self._listing.id, ())
        return self.take(listing)

    def take(self, listing: Listing) -> Chain:
        """Take in *listing*, which may be out of date."""
        self._listing = listing
        chain = self.begin()
        chain.update(listing, self.now_s)
        return chain

    def begin(self) -> Chain:
        """Return the chain; it is made where there is none, of what the former process saved."""
        if self._chain is None:
            assert self._listing is not None
            self._chain = Chain(
                self._listing.id,
                saved=self.saved,
                read_from=self.read_from,
                limits=self.limits,
                watermark=self.watermark,
                redactor=self._redactor,
            )
        return self._chain

    def read(self) -> list[Chunk]:
        """List, and read and acknowledge all there is."""
        self.look()
        return self.read_on()

    def read_on(self) -> list[Chunk]:
        """Read and acknowledge all there is, without looking at the folder."""
        chunks = []
        while (chunk := self.chain.read(self.now_s)) is not None:
            self.chain.acknowledge(chunk)
            chunks.append(chunk)
        return chunks

    def again(self, generation: str, start: int, end: int) -> list[Chunk]:
        """Read once more what was sent of *generation* between *start* and *end*, as a source does
        that owes it; what follows is missing where the file has no more.
        """
        chunks: list[Chunk] = []
        while start < end:
            found = self.chain.read_again(generation, 0, start, self.now_s)
            if found is Outcome.ENDED:
                break
            if isinstance(found, Chunk):
                chunks.append(within(found, start, end, self.chain.id.format))
                start = chunks[-1].end
        return chunks

    def drain(self) -> list[Chunk]:
        """Read all there is, until nothing more comes as time goes by."""
        chunks, quiet = self.read(), 0
        while quiet < 3:
            self.now_s += GRACE_S
            more = self.read()
            chunks += more
            quiet = 0 if more else quiet + 1
        return chunks


def joined(chunks: list[Chunk]) -> bytes:
    """Return all bytes of *chunks* in their order."""
    return b"".join(chunk.data for chunk in chunks)


class OldFolder:
    """A folder beside the log's own, into which a rotator moves or copies the log."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "old"
        self.path.mkdir()
        self.log = Folder(tmp_path / "logs")
        self._key = Key("h", str(self.log.live))
        self._owners = FileOwners(
            lambda key: self.log.chain if key == self._key else None,
            lambda key: False,
            lambda: self.log.now_s,
            self.log.scan_watermark,
        )
        self._owners.claim(self._key, ())
        self.log.watermark = SourceWatermark(
            ScanWatermark(), lambda: self._owners.undecided_since_s(self._key)
        )
        host = HostSources(host="h", include=(f"{self.path}/**",))
        self._discovery = Discovery([host], skipped=lambda path, reason: None)

    def owner(self, path: Path) -> str:
        """Look, and return whose the file at *path* is: empty where that cannot be told."""
        owner = ""
        for listing in self._discovery.scan():
            found = self._owners.sort(Key("h", listing.id.source), listing)
            if path in [file.path for file in found.listing.files]:
                owner = "itself"
        lent = self._owners.of(self._key)
        return "log" if path in [file.path for file in lent] else owner

    def lend(self) -> list[Chunk]:
        """Have the log's source look at the files that it was lent, and read on."""
        (own,) = self.log.discovery.scan()
        self.log.now_s += GRACE_S
        chain = self.log.take(self._owners.with_lent(self._key, own))
        self._owners.claim(self._key, chain.identities())
        return self.log.read_on()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def copytruncate(live: Path, target: Path) -> None:
    """Do what logrotate does where a program cannot be told to open its log anew."""
    shutil.copyfile(live, target)
    os.truncate(live, 0)


def pack(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data))
