"""Why a source of the former process was not found: its files may be gone, or be there all the
same, left out or in a folder that cannot be read.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from enum import Enum
from pathlib import Path

from logpipeline_shipper.files.listing import HostSources, SourceId
from logpipeline_shipper.files.open_file import look_at

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Absence(Enum):
    """Why a source was not found. What is left unread is lost only of one that is gone."""

    GONE = "gone"
    LEFT_OUT = "left-out"  # its live file is there, and it is not to be shipped any more
    UNREADABLE = "unreadable"  # nothing is known of it until its folder can be read


def absence_of(
    id: SourceId,
    known: Iterable[tuple[int, int, int]],
    hosts: Iterable[HostSources],
    unread: Collection[Path],
) -> Absence:
    """Return why no listing shows the source *id*, whose files have the identities *known*, once
    all folders of *hosts* were looked at, of which those of *unread* could not be read.
    """
    path = _live_path(id, hosts)
    if path is None:
        return Absence.GONE
    if any(folder in unread for folder in path.parents):
        return Absence.UNREADABLE
    try:
        found = look_at(path, follow_link=id.format == "cri")
    except OSError as error:
        return Absence.GONE if error.errno in _GONE else Absence.UNREADABLE
    # Devices may have another number since a reboot.
    is_there = (found.inode, found.born_ns) in {identity[1:] for identity in known}
    return Absence.LEFT_OUT if is_there else Absence.GONE


def _live_path(id: SourceId, hosts: Iterable[HostSources]) -> Path | None:
    if id.format == "plain":
        return Path(id.source)
    namespace, pod, uid, container, restart = id.source.split("/")
    for host in hosts:
        pods = host.pods_dir if host.host == id.host else None
        if pods is None and host.hosts_below is not None:
            pods = host.hosts_below / id.host / "pods"
        if pods is not None:
            return pods / f"{namespace}_{pod}_{uid}" / container / f"{restart}.log"
    return None
