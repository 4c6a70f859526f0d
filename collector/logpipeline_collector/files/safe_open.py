"""Opens, renames and removes files beneath a folder, component by component, without following
symbolic links.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a FIFO in place of a file would block for ever.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
FOLDER_MODE = 0o750
FILE_MODE = 0o640


class Blocked(OSError):
    """Component number *index* of a path is not a folder, and must be one."""

    def __init__(self, path: str, index: int) -> None:
        super().__init__(f"{path}: {path.split('/')[index]} is not a folder")
        self.index = index


class NotAFile(OSError):
    """What is at a path is not a regular file."""


@contextlib.contextmanager
def folder_of(root: Path, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that *path* lies in, and the name of *path* in it; with
    *make*, missing folders are created.

    Raises:
        FileNotFoundError: a folder is missing.
        Blocked: something else is in place of a folder.
    """
    *folders, name = path.split("/")
    descriptor = os.open(root, _FOLDER)
    try:
        for index, part in enumerate(folders):
            try:
                below = _step(descriptor, part, make=make)
            except NotADirectoryError:
                raise Blocked(path, index) from None
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_file(root: Path, path: str, flags: int) -> int:
    """Return a descriptor of the regular file *path*.

    Raises:
        FileNotFoundError: it is missing.
        NotAFile, Blocked: something else is there.
    """
    with folder_of(root, path) as (folder, name):
        try:
            descriptor = os.open(name, flags | _FILE, FILE_MODE, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise
            raise NotAFile(f"{path} is not a regular file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFile(f"{path} is not a regular file")
    return descriptor


def inode(root: Path, path: str) -> tuple[int, int] | None:
    """Return device and inode of what is at *path*; None where nothing is."""
    try:
        with folder_of(root, path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, Blocked):
        return None
    return status.st_dev, status.st_ino


def size(root: Path, path: str) -> int:
    """Return the size of the regular file *path*, in bytes.

    Raises:
        FileNotFoundError: it is missing.
        NotAFile, Blocked: something else is there.
    """
    with folder_of(root, path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise NotAFile(f"{path} is not a regular file")
    return status.st_size


def exists(root: Path, path: str) -> bool:
    """Return whether anything is at *path*."""
    return inode(root, path) is not None


def remove(root: Path, path: str) -> bool:
    """Remove the file *path*; return whether it was there. Not durable before `sync_folder`."""
    try:
        with folder_of(root, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, Blocked, IsADirectoryError):
        return False
    return True


def prune(root: Path, path: str) -> None:
    """Remove the folders of *path* that are empty, up to *root*."""
    folders = path.split("/")[:-1]
    for count in range(len(folders), 0, -1):
        try:
            with folder_of(root, "/".join(folders[:count])) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return  # not empty, or gone already: then the folders above are as well


def rename(root: Path, path: str, target: str) -> None:
    """Rename *path* to *target* in the same folder. Not durable before `sync_folder`."""
    with folder_of(root, path) as (folder, name):
        os.rename(name, target.rsplit("/", 1)[-1], src_dir_fd=folder, dst_dir_fd=folder)


def sync_folder(root: Path, folder: str) -> None:
    """Make the changes of names in *folder* durable; the empty text is *root* itself."""
    with folder_of(root, f"{folder}/." if folder else ".") as (descriptor, _):
        os.fsync(descriptor)


def folders_of(path: str) -> list[str]:
    """Return the folders that *path* lies in, *root* first, as `sync_folder` takes them."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def _step(folder: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, FOLDER_MODE, dir_fd=folder)
    return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
