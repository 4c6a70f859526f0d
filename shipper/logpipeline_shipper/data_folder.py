"""The data folder of one shipper: its lock, its permanent name, and the id of the machine's boot.

Two shippers in one folder would overwrite each other's positions, and lose lines.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path

from logpipeline import statefile
from logpipeline.filelock import FileLock, FileLocked

log = logging.getLogger(__name__)

_LOCK = "lock"
_INSTALLATION = re.compile(r"[0-9a-f]{32}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DataFolderBusy(Exception):
    """Another shipper works in the folder."""


class DataFolder:
    """An open data folder, locked until `close`. *was_others*: its positions were those of a former
    pipeline of the same name, and were set aside.
    """

    def __init__(
        self, path: Path, lock: FileLock, installation: str, pipeline_uid: str, *, was_others: bool
    ) -> None:
        self.path = path
        self.installation = installation
        self.was_others = was_others
        self._pipeline_uid = pipeline_uid
        self._lock = lock

    @staticmethod
    def open(path: Path, pipeline_uid: str = "") -> DataFolder:
        """Make *path* if necessary, lock it for the pipeline *pipeline_uid*, and return it.

        Raises:
            DataFolderBusy: another shipper has it.
            OSError: it cannot be made or written.
        """
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _locked(path)
        try:
            was_others = bool(pipeline_uid) and _takes_over(path, pipeline_uid)
            installation = _installation(path)
            return DataFolder(path, lock, installation, pipeline_uid, was_others=was_others)
        except BaseException:
            lock.close()
            raise

    def restore(self) -> bool:
        """Make the folder anew if it was removed, emptied or replaced since it was opened; return
        whether it was. The state of the shipper is in memory, and is saved there again.

        Raises:
            DataFolderBusy: another shipper works in the new folder.
            OSError: it cannot be made or written.
        """
        if self._lock.is_in_place():
            return False
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = _locked(self.path)
        try:
            _write_installation(self.path, self.installation)
            if self._pipeline_uid:
                statefile.write_state(self.path / "pipeline", "pipeline", 1, self._pipeline_uid)
        except BaseException:
            lock.close()
            raise
        self._lock.close()
        self._lock = lock
        log.error(
            "the data folder was removed while the shipper ran; it is made anew",
            extra={"folder": str(self.path)},
        )
        return True

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()


def boot_id() -> str:
    """Return the id of this boot of the machine, or an empty text if there is none.

    Bytes that were written without fsync survive a kill within the same boot, but maybe not a
    reboot.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _locked(path: Path) -> FileLock:
    try:
        lock = FileLock.take(path / _LOCK)
    except FileLocked as error:
        raise DataFolderBusy(
            f"another shipper (process {error.owner}) works in {path}; "
            "stop it, or give this one a data folder of its own"
        ) from None
    lock.write_owner(os.getpid())
    return lock


def _installation(path: Path) -> str:
    file = path / "installation"
    try:
        name = statefile.read_state(file, "installation", 1)
        if isinstance(name, str) and _INSTALLATION.fullmatch(name):
            return name
        if name is not None:
            raise statefile.StateBroken(f"{file}: {str(name)[:40]!r} is no installation's name")
    except statefile.StateBroken as error:
        aside = statefile.set_aside(file)
        # Readers know sources by host and path, and drop duplicates: only the server's own check
        # for duplicates begins anew.
        log.error(
            "the name of the installation was damaged; a new one is made",
            extra={"reason": str(error), "aside": str(aside)},
        )
    name = secrets.token_hex(16)
    _write_installation(path, name)
    return name


def _write_installation(path: Path, name: str) -> None:
    statefile.write_state(path / "installation", "installation", 1, name)


def _takes_over(path: Path, pipeline_uid: str) -> bool:
    """Note the pipeline of the folder; return whether it was a former pipeline, deleted since: its
    positions say nothing about what collectors of the new one have.
    """
    file = path / "pipeline"
    try:
        former = statefile.read_state(file, "pipeline", 1)
    except statefile.StateBroken:
        former = None
    if former == pipeline_uid:
        return False
    positions = path / "positions"
    is_anothers = former is not None and positions.exists()
    if is_anothers:
        aside = statefile.set_aside(positions)
        log.warning(
            "the pipeline was deleted and made anew; collectors are asked what they have",
            extra={"former": former, "pipeline": pipeline_uid, "aside": str(aside)},
        )
    # Written after the positions were set aside: a crash in between must not leave them to the new
    # pipeline.
    statefile.write_state(file, "pipeline", 1, pipeline_uid)
    return is_anothers
