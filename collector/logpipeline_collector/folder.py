"""A collector's folder. It is locked, so that one process works in it, and it has an identity, so
that the next process can prove that the one before it is gone.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from logpipeline.filelock import FileLock, FileLocked
from logpipeline.statefile import StateBroken, read_state, set_aside, write_state

KIND = "collector-folder"
IDENTITY = "identity"
VERSION = 1
# A folder that was put back from a copy knows whose copy it is, and of which copy that was one.
FORMER_MAX = 8


class FolderBusy(Exception):
    """Another process works as the same member in the folder."""


class Folder:
    """A claimed folder. *incarnation* names this process; it begins with the folder's own name.
    *copied_from* are the identities of the folders of which this one is a copy.
    """

    def __init__(
        self, lock: FileLock, identity: str, copied_from: tuple[str, ...], token: str
    ) -> None:
        self._lock = lock
        self.identity = identity
        self.copied_from = copied_from
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
        identity, copied_from = _identity_of(state)
        return Folder(lock, identity, copied_from, secrets.token_hex(6))

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
    known = _read(folder / "state" / group)
    return known.name if known is not None and known.is_original else None


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
