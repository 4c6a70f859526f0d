"""A collector's folder. It is locked, so that one process works in it, and it has an identity, so
that the next process can prove that the one before it is gone.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from logpipeline.filelock import FileLock, FileLocked
from logpipeline.statefile import StateBroken, read_state, set_aside, write_state

KIND = "collector-folder"
IDENTITY = "identity"
VERSION = 1


class FolderBusy(Exception):
    """Another process works as the same member in the folder."""


class Folder:
    """A claimed folder. *incarnation* names this process; it begins with the folder's own name."""

    def __init__(self, lock: FileLock, identity: str, token: str) -> None:
        self._lock = lock
        self.identity = identity
        self.incarnation = f"{identity}-{token}"

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
        return Folder(lock, _identity_of(state), secrets.token_hex(6))

    def is_ours(self, incarnation: str) -> bool:
        """Return whether *incarnation* was a process of this folder. Unless it is this process, it
        is gone: we hold the lock that it held.
        """
        return incarnation.startswith(self.identity + "-")

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()


def known_identity(folder: Path, group: str) -> str | None:
    """Return the identity of *folder*, with which its incarnations begin; None if it has none."""
    return _known(folder / "state" / group)


def _identity_of(state: Path) -> str:
    try:
        known = _known(state)
    except StateBroken:
        set_aside(state / IDENTITY)
        known = None
    if known is None:
        known = secrets.token_hex(8)
        written = {"inode": state.stat().st_ino, "name": known}
        write_state(state / IDENTITY, KIND, VERSION, written)
    return known


def _known(state: Path) -> str | None:
    # A copy of a folder must not have the identity of the original: the inodes differ.
    known = read_state(state / IDENTITY, KIND, VERSION)
    if not isinstance(known, dict) or known.get("inode") != state.stat().st_ino:
        return None
    return str(known["name"])
