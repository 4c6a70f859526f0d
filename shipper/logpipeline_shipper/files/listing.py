"""Sources and the files in which their bytes are: discovery makes listings, chains read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from logpipeline.codecs import Codec
from logpipeline.spec.streams import Acknowledge

Format = Literal["cri", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceId:
    """One container's log, or one plain file, with all its rotated predecessors.

    *source* is its name on the wire: ``<namespace>/<pod>/<uid>/<container>/<restart>`` or the
    path of the live file.
    """

    host: str
    source: str
    format: Format
    namespace: str = ""
    pod: str = ""
    container: str = ""


def id_of(host: str, source: str) -> SourceId:
    """Return the source with the name *source* on the wire."""
    parts = source.split("/")
    if source.startswith("/") or len(parts) != 5:
        return SourceId(host=host, source=source, format="plain")
    namespace, pod, _, container, _ = parts
    return SourceId(
        host=host, source=source, format="cri", namespace=namespace, pod=pod, container=container
    )


@dataclass(frozen=True, slots=True)
class ChainFile:
    """A file of a chain when it was listed; *born_ns* is 0 if the file system has no birth times.
    *is_live*: it has the name that programs write to, and not one that a rotator gave. *is_aside*:
    it has the temporary name of a log that is about to be copied; it is read if it was seen as the
    live file before, and otherwise its copy is. No folder between *root* and *path* may be a link
    when it is opened.
    """

    path: Path
    device: int
    inode: int
    size: int
    mtime_ns: int
    codec: Codec | None
    born_ns: int = 0
    is_live: bool = False
    is_aside: bool = False
    root: Path = Path("/")

    @property
    def compressed(self) -> bool:
        """Return whether it is packed."""
        return self.codec is not None

    @property
    def key(self) -> tuple[int, int]:
        """Return device and inode, which identify the file while it is open."""
        return self.device, self.inode

    @property
    def identity(self) -> tuple[int, int, int]:
        """Return device, inode and birth, which identify it also if its inode was reused."""
        return self.device, self.inode, self.born_ns


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one source, oldest first; the last one is the live file.

    Between a rename and the creation of the next file there is no live file: then the last one
    still grows. No files at all means that the source is gone.
    """

    id: SourceId
    files: tuple[ChainFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSources:
    """The places of the logs of one host.

    *pods_dir* has the layout of ``/var/log/pods``; *include* and *exclude* are patterns of absolute
    paths, in which ``**`` stands for any folders; each folder F below *hosts_below* is one more
    host F with ``F/pods`` and ``F/files/**``. *ack* is the acknowledgement to wait for when lines
    of *include* are sent, None for the shipper's default.
    """

    host: str
    pods_dir: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hosts_below: Path | None = None
    ack: Acknowledge | None = None


# A file that a listing lacks may just be renamed: it is gone when a later listing lacks it as well.
# If the machine is busy, or was suspended, that listing may come long after the one before. So a
# missing file is judged by the time of listings, not by a clock alone.
class Watermark(Protocol):
    """The time up to which all changes of the folders are known."""

    def at(self, now_s: float) -> float:
        """Return the time, *now_s* at most, up to which all changes are known."""

    def listed(self, now_s: float) -> float:
        """Return the time, *now_s* at most, up to which all folders were listed: files that are not
        decided on do not hold it up.
        """


@dataclass(slots=True)
class ScanWatermark:
    """The watermark of discovery over all folders, which moves *until_s*."""

    until_s: float = math.inf

    def at(self, now_s: float) -> float:
        """Return the time, *now_s* at most, up to which all changes are known."""
        return min(now_s, self.until_s)

    def listed(self, now_s: float) -> float:
        """Return the same: only sources have files that are not decided on."""
        return self.at(now_s)


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """The watermark of one source: that of *folders*, but at most *undecided_since_s*, the time
    since which a file is not decided on that may belong to the source under another name.
    """

    folders: ScanWatermark
    undecided_since_s: Callable[[], float]

    def at(self, now_s: float) -> float:
        """Return the time, *now_s* at most, up to which all changes are known."""
        return min(self.folders.at(now_s), self.undecided_since_s())

    def listed(self, now_s: float) -> float:
        """Return the time, *now_s* at most, up to which all folders were listed."""
        return self.folders.at(now_s)
