"""One folder as it is now: its files and subfolders, without following links.

What cannot be observed is an error, never an absence: an unreadable folder must not look as if its
files were deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline_shipper.files.identity import look_at
from logpipeline_shipper.files.naming import chains_of, rotation_of
from logpipeline_shipper.files.opening import Moved, TooManyOpen, Unreadable, open_reader
from logpipeline_shipper.files.sources import ChainFile

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# So much of a file tells whether it is text.
_SAMPLE_BYTES = 1024
# A shorter sample with a line in it is taken for text whatever it holds.
_SAMPLE_BYTES_MIN = 256
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x08\x1b"))
_CONTROL_SHARE_MAX = 0.3
_JOURNAL_MAGIC = b"LPKSHHRH"


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


class TextCheck:
    """Whether files are text, each looked at once: wtmp, lastlog and journals are not shipped."""

    def __init__(self, report: Callable[[Path, str], None]) -> None:
        self._report = report
        self._verdicts: dict[str, tuple[tuple[int, int, int], bool]] = {}

    def is_text(self, files: list[ChainFile]) -> bool | None:
        """Return whether all of *files* are text; None while none of them has any content."""
        verdicts = [self._verdict(file) for file in files if file.size]
        return all(verdicts) if verdicts else None

    def keep(self, names: set[str]) -> None:
        """Forget files that are not among *names*."""
        self._verdicts = {name: known for name, known in self._verdicts.items() if name in names}

    def _verdict(self, file: ChainFile) -> bool:
        known = self._verdicts.get(file.path.name)
        if known is not None and known[0] == file.identity:
            return known[1]
        try:
            reader = open_reader(file, follow_link=False)
        except (Moved, TooManyOpen):
            return True
        except Unreadable as error:
            # It stays in its chain, which tries it again and counts it.
            self._report(file.path, error.reason)
            return True
        try:
            sample = reader.read(0, _SAMPLE_BYTES)
            verdict = not is_binary(sample)
        except OSError:
            return True
        finally:
            reader.close()
        # A first line that is being written may hold a NUL and show its end only later.
        if verdict or b"\n" in sample or len(sample) == _SAMPLE_BYTES:
            self._verdicts[file.path.name] = (file.identity, verdict)
        return verdict


def is_binary(sample: bytes) -> bool:
    """Return whether a file that begins with *sample* is no text: NUL without any line, or a good
    part of it control characters.
    """
    if sample.startswith(_JOURNAL_MAGIC):
        return True
    if b"\0" not in sample:
        return False
    if b"\n" not in sample:
        return True
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    return len(sample) >= _SAMPLE_BYTES_MIN and controls > len(sample) * _CONTROL_SHARE_MAX
