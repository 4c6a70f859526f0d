"""The data folder of a pipeline: whether it is one, whose it is, and who may work in it."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logpipeline.filelock import FileLock, FileLocked
from logpipeline.layout import Layout, default_data
from logpipeline.spec import LogPipeline, SpecError, load
from logpipeline_cli.errors import CliError

log = logging.getLogger(__name__)

# Other users of the machine must not read the logs; those of the group may.
DATA_MODE = 0o750
# Made by a new file system in its root, which may be the folder of a server's store or of a table.
LOST_AND_FOUND = "lost+found"


@contextmanager
def only_one(layout: Layout) -> Iterator[None]:
    """Keep others from running the pipeline of *layout* meanwhile.

    Raises:
        CliError: it runs.
    """
    try:
        lock = FileLock.take(layout.lock_file)
    except FileLocked as error:
        raise CliError(
            f"a pipeline already runs in {layout.data} (process {error.owner}); stop it (Ctrl-C "
            "there), or give this one another folder with --data DIR"
        ) from None
    with lock:
        lock.write_owner(os.getpid())
        yield


def make(layout: Layout) -> None:
    """Make the folder, closed to other users; log a warning if an existing one is open to them."""
    layout.data.mkdir(mode=DATA_MODE, parents=True, exist_ok=True)
    # Its mode stays: its owner may have opened it for a program that reads the files.
    if layout.data.stat().st_mode & stat.S_IRWXO:
        log.warning(
            "every user of this machine may enter the data folder, which holds logs; to close it: "
            "chmod o-rwx",
            extra={"at": str(layout.data)},
        )


def check_usable(layout: Layout, pipeline: LogPipeline) -> None:
    """Check that no file of others, and of no other pipeline, stands where *pipeline* would write
    its own.

    Raises:
        CliError: files of others would be replaced now, or removed with the pipeline's data.
    """
    if _is_ours(layout, pipeline):
        _check_owner(layout, pipeline)
        return
    for path in layout.everything:
        if _holds_something(path):
            raise CliError(
                f"{layout.data} is not a data folder of `logpipeline up`, and {path} would be "
                "taken for a part of one: give another folder with --data DIR, a new or empty one"
            )


def check_removable(layout: Layout, pipeline: LogPipeline) -> None:
    """Check that the folder's data is that of *pipeline*, before it is removed.

    Raises:
        CliError: it is no data folder, or that of another pipeline.
    """
    if not _is_ours(layout, pipeline):
        raise CliError(
            f"{layout.data} is not a data folder of `logpipeline up`, which leaves a "
            f"{layout.lock_file.name} there: nothing in it is deleted"
        )
    _check_owner(layout, pipeline, is_needed=True)


def check_outside(file: Path, layout: Layout) -> None:
    """Check that the resource *file* is not one of the pipeline's own files.

    Raises:
        CliError: it is; it would be replaced, and removed with the pipeline's data.
    """
    there = file.resolve()
    for path in layout.everything:
        if there.is_relative_to(path.resolve()):
            raise CliError(
                f"{file} is where `logpipeline up` keeps files of its own, and would be replaced: "
                f"move it out of {layout.data}, or give another folder with --data DIR"
            )


def _is_ours(layout: Layout, pipeline: LogPipeline) -> bool:
    # The lock's file is the first that `up` makes in a folder and the last that `delete` removes,
    # in all versions. `collect` and `ship` alone use the default folder, and lock nothing.
    default = default_data(pipeline.namespace, pipeline.name).absolute()
    return layout.lock_file.is_file() or layout.data == default


def _check_owner(layout: Layout, pipeline: LogPipeline, *, is_needed: bool = False) -> None:
    """Check that *layout* has no data of another pipeline. If the owner *is needed*, one that
    cannot be read is an error: else it may be of another version.
    """
    try:
        owner = _owner(layout)
    except CliError:
        if is_needed:
            raise
        return
    if owner is not None and owner != (pipeline.namespace, pipeline.name):
        raise CliError(
            f"{layout.data} has the data of {'/'.join(owner)}, not of "
            f"{pipeline.namespace}/{pipeline.name}: give the folder and the resource that belong "
            "together"
        )


def _owner(layout: Layout) -> tuple[str, str] | None:
    """Return namespace and name of the resource that was applied last in *layout*, None if none
    was.
    """
    try:
        applied = load(layout.pipeline)
    except FileNotFoundError:
        return None
    except SpecError as error:
        raise CliError(
            f"{layout.pipeline} does not say whose data {layout.data} holds ({error}): remove "
            "that folder by hand"
        ) from error
    return applied.namespace, applied.name


def _holds_something(path: Path) -> bool:
    """Return whether there is a file at *path*, or below it: folders alone may be where disks are
    mounted.
    """
    if not path.is_dir():
        return path.exists() or path.is_symlink()
    for _, folders, names in os.walk(path):
        if names:
            return True
        folders[:] = [folder for folder in folders if folder != LOST_AND_FOUND]
    return False
