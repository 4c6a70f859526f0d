"""A collector's folder. It is locked, so that one process works in it, and it has an identity, so
that the next process can prove that the one before it is gone.

An image of a volume has the identity of the original, and a lock of its own. So each process notes
its start in the folder, where an image that was made before does not have it; and the lock proves
something only about a process that held it in the same place.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

from logpipeline.filelock import FileLock, FileLocked
from logpipeline.statefile import StateBroken, read_state, set_aside, write_state

KIND = "collector-folder"
IDENTITY = "identity"
VERSION = 1
STARTS_KIND = "collector-starts"
# Starts of a member in the folder that are known; a process that died before those is gone only
# once it was silent.
STARTS_MAX = 8
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A folder that was put back from a copy knows whose copy it is, and of which copy that was one.
FORMER_MAX = 8

log = logging.getLogger(__name__)


class FolderBusy(Exception):
    """Another process works as the same member in the folder."""


class Folder:
    """A claimed folder. *incarnation* names this process; it begins with the folder's own name.
    *copied_from* are the identities of the folders of which this one is a copy, *starts* are the
    tokens of our member's processes in it, this one's last. *place* is where its lock is.
    """

    def __init__(
        self,
        lock: FileLock,
        identity: str,
        copied_from: tuple[str, ...],
        starts: tuple[str, ...],
    ) -> None:
        self._lock = lock
        self._known = [f"{identity}-{token}" for token in starts]
        self.identity = identity
        self.copied_from = copied_from
        self.incarnation = self._known[-1]
        self.place = _place_of(lock)

    @staticmethod
    def claim(folder: Path, group: str, member: str) -> Folder:
        """Lock *folder* for *member*, and return it.

        Raises:
            FolderBusy: a living process holds it.
            OSError: it cannot be written.
        """
        state = folder / "state" / group
        state.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock.take(state / f"{member}.lock")
        except FileLocked:
            raise FolderBusy(
                f"{folder}: another process runs as {member} of group {group} in this folder; "
                "stop it first, or give this one another folder and name"
            ) from None
        identity, copied_from = _identity_of(state)
        return Folder(lock, identity, copied_from, _noted_start(state, member))

    def is_ours(self, incarnation: str) -> bool:
        """Return whether *incarnation* was a process of our member in this folder, or in one of
        which this is an image. One that held the lock in our *place* is gone.
        """
        return incarnation in self._known

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()


def known_identity(folder: Path, group: str) -> str | None:
    """Return the identity of *folder*, with which its incarnations begin; None if it has none."""
    known = _read(folder / "state" / group)
    return known.name if known is not None and known.is_original else None


def _noted_start(state: Path, member: str) -> tuple[str, ...]:
    """Note a start of *member*, and return the tokens of all that are known."""
    path = state / f"{member}.starts"
    try:
        known = read_state(path, STARTS_KIND, VERSION)
    except StateBroken:
        set_aside(path)
        known = None
    tokens = known if isinstance(known, list) else []
    starts = (*map(str, tokens), secrets.token_hex(6))[-STARTS_MAX:]
    try:
        write_state(path, STARTS_KIND, VERSION, list(starts))
    except OSError as error:
        # A full disk: the next process waits until this one was silent.
        log.warning("this start is not noted", extra={"path": str(path), "reason": str(error)})
    return starts


def _place_of(lock: FileLock) -> str:
    """Return the name of the kernel that knows *lock*, and of its file there."""
    try:
        kernel = BOOT_ID.read_text().strip()
    except OSError:
        kernel = socket.gethostname()  # macOS has no such file
    status = os.fstat(lock.descriptor)
    return f"{kernel}:{status.st_dev}:{status.st_ino}"


class _Identity(NamedTuple):
    name: str
    copied_from: tuple[str, ...]
    is_original: bool


def _identity_of(state: Path) -> tuple[str, tuple[str, ...]]:
    try:
        known = _read(state)
    except StateBroken:
        set_aside(state / IDENTITY)
        known = None
    if known is not None and known.is_original:
        return known.name, known.copied_from
    name = secrets.token_hex(8)
    copied_from = (known.name, *known.copied_from)[:FORMER_MAX] if known is not None else ()
    written = {"inode": state.stat().st_ino, "name": name, "copied_from": list(copied_from)}
    write_state(state / IDENTITY, KIND, VERSION, written)
    return name, copied_from


def _read(state: Path) -> _Identity | None:
    known = read_state(state / IDENTITY, KIND, VERSION)
    if not isinstance(known, dict) or "name" not in known:
        return None
    copied_from = tuple(str(each) for each in known.get("copied_from", ()))
    # A copy of a folder must not have the identity of the original: the inodes differ.
    is_original = known.get("inode") == state.stat().st_ino
    return _Identity(str(known["name"]), copied_from, is_original)
