"""What is read: sources and the files their bytes lie in. Discovery says it, chains act on it."""

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

    *source* is what the wire calls it: ``<namespace>/<pod>/<uid>/<container>/<restart>`` or the
    path of the live file.
    """

    host: str
    source: str
    format: Format
    namespace: str = ""
    pod: str = ""
    container: str = ""


def id_of(host: str, source: str) -> SourceId:
    """Return the source that is called *source* on the wire."""
    parts = source.split("/")
    if source.startswith("/") or len(parts) != 5:
        return SourceId(host=host, source=source, format="plain")
    namespace, pod, _, container, _ = parts
    return SourceId(
        host=host, source=source, format="cri", namespace=namespace, pod=pod, container=container
    )


@dataclass(frozen=True, slots=True)
class ChainFile:
    """A file of a chain as a listing saw it; *born_ns* is 0 where the file system does not tell.
    *is_live* says that it has the name which is written to, and no rotator's, *is_aside* that it
    has the temporary one of a log that is about to be copied: it is read only if it is known.
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

    @property
    def compressed(self) -> bool:
        """Return whether it is packed."""
        return self.codec is not None

    @property
    def key(self) -> tuple[int, int]:
        """Return device and inode: who the file is, as long as somebody keeps it open."""
        return self.device, self.inode

    @property
    def identity(self) -> tuple[int, int, int]:
        """Return who the file is, whatever had its inode before."""
        return self.device, self.inode, self.born_ns


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of one source, oldest first; the last one is the live file.

    Between a rename and the reopening there is no live file: the last one still grows then. No
    files at all means that the source vanished.
    """

    id: SourceId
    files: tuple[ChainFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSources:
    """Where the logs of one host lie.

    *pods_dir* has the layout of ``/var/log/pods``; *include* and *exclude* are patterns of absolute
    paths, in which ``**`` stands for any folders; each folder F below *hosts_below* is one more
    host F with ``F/pods`` and ``F/files/**``. *ack* is what is waited for when lines of *include*
    are sent, None for what the shipper's default is.
    """

    host: str
    pods_dir: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hosts_below: Path | None = None
    ack: Acknowledge | None = None


# A file that a listing lacks may be being renamed: it is gone when a later look does not show it
# either. Where the machine is busy, or was asleep, that look may come long after the one before. So
# what is missing is judged by the time of looks, not by a clock alone.
class Watermark(Protocol):
    """What a source knows of the folders."""

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""


@dataclass(slots=True)
class ScanWatermark:
    """What discovery saw of all folders; it moves *until_s*."""

    until_s: float = math.inf

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""
        return min(now_s, self.until_s)


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """What one source knows: all that *folders* has seen, up to the time *undecided_since_s* when
    a file was seen first that may be the source's own under another name, which cannot be told yet.
    """

    folders: ScanWatermark
    undecided_since_s: Callable[[], float]

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""
        return min(self.folders.at(now_s), self.undecided_since_s())
