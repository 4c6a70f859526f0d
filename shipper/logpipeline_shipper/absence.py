"""Why a source of the former process was not found: its files may be gone, or be there all the
same, left out or in a folder that cannot be read.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from enum import Enum
from functools import lru_cache
from pathlib import Path

from logpipeline_shipper.files.listing import HostSources, SourceId
from logpipeline_shipper.files.open_file import look_at
from logpipeline_shipper.files.source_filter import Patterns

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Absence(Enum):
    """Why a source was not found. What is left unread is lost only of one that is gone."""

    GONE = "gone"
    LEFT_OUT = "left-out"  # it is not to be shipped any more
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
    path = Path(id.source) if id.format == "plain" else _container_log(id, hosts)
    if path is None or (id.format == "plain" and not _is_searched(path, id.host, hosts)):
        return Absence.LEFT_OUT
    if any(folder in unread for folder in path.parents):
        return Absence.UNREADABLE
    try:
        found = look_at(path, follow_link=id.format == "cri")
    except OSError as error:
        return Absence.GONE if error.errno in _GONE else Absence.UNREADABLE
    # Devices may have another number since a reboot.
    is_there = (found.inode, found.born_ns) in {identity[1:] for identity in known}
    return Absence.LEFT_OUT if is_there else Absence.GONE


def _container_log(id: SourceId, hosts: Iterable[HostSources]) -> Path | None:
    """Return the path of the log of the container *id*, None if no containers are searched."""
    namespace, pod, uid, container, restart = id.source.split("/")
    for host in hosts:
        pods = host.pods_dir if host.host == id.host else None
        if pods is None and host.hosts_below is not None:
            pods = host.hosts_below / id.host / "pods"
        if pods is not None:
            return pods / f"{namespace}_{pod}_{uid}" / container / f"{restart}.log"
    return None


def _is_searched(path: Path, host: str, hosts: Iterable[HostSources]) -> bool:
    """Return whether logs of *host* are searched in a folder of *path*, which is not excluded."""
    for each in hosts:
        roots, exclude = _files_of(each)
        if each.host != host:
            roots = []
        if each.hosts_below is not None:
            roots = [*roots, each.hosts_below / host / "files"]
        if any(root in path.parents for root in roots) and not exclude.match_path(path):
            return True
    return False


# A start may find that thousands of files are not there.
@lru_cache(maxsize=64)
def _files_of(host: HostSources) -> tuple[list[Path], Patterns]:
    """Return the top folders in which plain files are searched, and what is excluded."""
    # A pattern may name rotated files alone, so that the live one need not match it.
    return list(Patterns.of(host.include).roots()), Patterns.of(host.exclude)
