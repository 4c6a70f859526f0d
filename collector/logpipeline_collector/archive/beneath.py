"""Opens files beneath a folder, component by component, without ever following a symbolic link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(root: Path, path: str, flags: int, *, make: bool = False) -> int:
    """Return a descriptor of *path* below *root*; with *make*, missing folders are created.

    Raises:
        OSError: it cannot be opened; ELOOP or ENOTDIR where a component is a link.
    """
    folder = os.open(root, _FOLDER)
    try:
        *folders, name = path.split("/")
        for part in folders:
            folder = _step(folder, part, make=make)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640, dir_fd=folder)
    finally:
        os.close(folder)


def folder_of(root: Path, path: str) -> int:
    """Return a descriptor of the folder that *path* lies in."""
    folder = os.open(root, _FOLDER)
    for part in path.split("/")[:-1]:
        folder = _step(folder, part, make=False)
    return folder


def remove(root: Path, path: str) -> bool:
    """Remove *path* below *root* for good; return whether it was there."""
    try:
        folder = folder_of(root, path)
    except FileNotFoundError:
        return False
    try:
        os.unlink(path.rsplit("/", 1)[-1], dir_fd=folder)
        os.fsync(folder)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def rename(root: Path, path: str, target: str) -> None:
    """Rename *path* to *target* in the same folder, for good."""
    folder = folder_of(root, path)
    try:
        names = path.rsplit("/", 1)[-1], target.rsplit("/", 1)[-1]
        os.rename(*names, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(folder)


def exists(root: Path, path: str) -> bool:
    """Return whether something stands at *path* below *root*."""
    try:
        folder = folder_of(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.stat(path.rsplit("/", 1)[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def _step(folder: int, part: str, *, make: bool) -> int:
    try:
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
        try:
            os.mkdir(part, 0o750, dir_fd=folder)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        return os.open(part, _FOLDER, dir_fd=folder)
    finally:
        os.close(folder)
