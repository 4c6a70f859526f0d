"""One folder as it is now: its files and subfolders, without following links.

What cannot be observed is an error, never an absence: an unreadable folder must not look as if its
files were deleted.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from logpipeline_shipper.files.identity import look_at
from logpipeline_shipper.files.naming import ASIDE, chains_of, rotation_of
from logpipeline_shipper.files.sources import ChainFile

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderGone(Exception):
    """The folder does not exist."""


class FolderUnreadable(Exception):
    """The folder could not be observed; its message is one token."""


@dataclass(slots=True)
class View:
    """What a folder holds. *odd* is everything else, with the reason why it is never read."""

    files: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    odd: dict[str, str] = field(default_factory=dict)


def look_into(path: Path, *, follow_link: bool) -> View:
    """Return what the folder *path* holds.

    Raises:
        FolderGone: it does not exist.
        FolderUnreadable: it could not be observed.
    """
    view = View()
    try:
        descriptor = os.open(path, _FLAGS | (0 if follow_link else os.O_NOFOLLOW))
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    _sort_in(view, entry)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _GONE:
            raise FolderGone from error
        raise FolderUnreadable(errno.errorcode.get(error.errno or 0, "unknown")) from error
    return view


def _sort_in(view: View, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        view.links.add(entry.name)
    elif entry.is_dir(follow_symlinks=False):
        view.folders.add(entry.name)
    elif entry.is_file(follow_symlinks=False):
        view.files.add(entry.name)
    else:
        view.odd[entry.name] = "not-a-regular-file"


def chain_files(folder: Path, names: set[str], *, follow_link: bool) -> dict[str, list[ChainFile]]:
    """Return the chains among the files *names* of *folder*, by the name of the live file.

    Raises:
        FolderUnreadable: a file could not be observed.
    """
    chains: dict[str, list[ChainFile]] = {}
    for live, members in chains_of(names).items():
        files: dict[tuple[int, int], ChainFile] = {}
        for name, compressed in members:
            file = _observe(folder / name, compressed, follow_link, is_live=name == live)
            if file is not None:
                files[file.key] = file  # of two hard links the newer name counts
        if files:
            chains[live] = list(files.values())
        if files and f"{live}{ASIDE}" in names:
            aside = _observe(folder / f"{live}{ASIDE}", False, follow_link, is_live=False)
            if aside is not None and aside.key not in files:
                # Its place among the others is the one that it had when it was the live file.
                chains[live].insert(0, replace(aside, is_aside=True))
    return chains


def _observe(path: Path, compressed: bool, follow_link: bool, *, is_live: bool) -> ChainFile | None:
    try:
        found = look_at(path, follow_link=follow_link)
    except OSError as error:
        if error.errno in (*_GONE, errno.ELOOP):
            return None
        raise FolderUnreadable(errno.errorcode.get(error.errno or 0, "unknown")) from error
    if not found.is_regular:
        return None
    return ChainFile(
        path,
        device=found.device,
        inode=found.inode,
        size=found.size,
        mtime_ns=found.mtime_ns,
        compressed=compressed,
        born_ns=found.born_ns,
        is_live=is_live,
    )


def unread_reason(name: str) -> str | None:
    """Return why a file with this *name* is never read, None if it is."""
    return None if rotation_of(name) is not None else "temporary-or-unknown-compression"
