"""Commit of files, and their recovery. The order of steps survives a crash at any moment: a name is
announced before a file gets it, and a file is durable before the state counts its bytes. After a
crash, recovery brings the files to what the state says.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping
from typing import NamedTuple

from logpipeline.deduplication import SourceState
from logpipeline.failpoints import reach
from logpipeline_collector.files import safe_open
from logpipeline_collector.files.intents import moved, packed
from logpipeline_collector.files.output import OutputFile, OutputFiles
from logpipeline_collector.files.render import Tail
from logpipeline_collector.files.safe_open import Blocked, NotAFile
from logpipeline_collector.files.state import FileRow, Stage, State, disk_error
from logpipeline_collector.sink import LocalCommit, SinkFailed, SinkFull, SourceName

# Measured with 1,000 dirty files on a volume of their own: one syncfs takes 40 % of the time of
# 1,000 fdatasyncs. On a volume with other writers a few of ours are not worth theirs.
FILES_ONE_BY_ONE_MAX = 50
# A name that a file of another program has gets a number. In a folder full of such files we give
# up.
NAMES_TRIED_MAX = 100

log = logging.getLogger(__name__)


class FileMark(NamedTuple):
    """Length and end of a file at the mark; it may have grown since."""

    length: int
    tail: Tail | None


def write(
    commit: LocalCommit,
    marks: Mapping[OutputFile, FileMark],
    sources: Mapping[SourceName, SourceState | None],
    output: OutputFiles,
    state: State,
) -> None:
    """Make *commit* durable, with the files up to their *marks*, and the *sources* that changed. It
    may be repeated after SinkFull, and after nothing else.

    Raises:
        SinkFull: there is no room for names or state.
        SinkFailed: the disk failed.
    """
    reach("collector.after-write")
    new = [file for file in marks if file.is_scratch]
    try:
        _name(new, output, state)
    except OSError as error:
        if isinstance(error, SinkFull):
            raise
        raise disk_error(error, "make new files", output.root) from error
    _sync(marks, new, output)
    reach("collector.after-fsync")
    rows = {file.number: file.row(*mark) for file, mark in marks.items()}
    state.commit(commit, rows, sources)
    reach("collector.after-state")
    with output.lock:
        for file in marks:
            file.committed = rows[file.number]
            file.is_scratch = False
    for file in new:
        output.scratch_of(file).unlink(missing_ok=True)
    for file in [file for file in marks if file.stage is Stage.GONE]:
        output.forget(file)


def _name(new: list[OutputFile], output: OutputFiles, state: State) -> None:
    """Give each *new* file a name below the root, after announcing all names in one transaction."""
    unnamed = [file for file in new if not _is_named(file, output)]
    for attempt in itertools.count():
        if not unnamed:
            return
        if attempt == NAMES_TRIED_MAX:
            raise SinkFailed(f"{output.root / unnamed[0].place} and more names are taken")
        for file in unnamed:
            file.path = free_path(output, file.place)
        announced = {file.number: file.row(0, None) for file in unnamed}
        state.announce({number: row._replace(stage=Stage.NEW) for number, row in announced.items()})
        reach("files.new-announced")
        unnamed = [file for file in unnamed if not _link(file, output)]
        reach("files.new-named")


def free_path(output: OutputFiles, path: str) -> str:
    """Return *path*, or a free path beside it, and make its folders.

    A file that the state does not know is not ours, and is not overwritten. No encoded name has a
    tilde, so the other path cannot be the place of another source.
    """
    parts = path.split("/")
    for number in range(NAMES_TRIED_MAX):
        wanted = "/".join(parts) + (f"~{number}" if number else "")
        while True:
            try:
                with safe_open.folder_of(output.root, wanted, make=True) as (folder, name):
                    if not _stands(name, folder):
                        return wanted
                break
            except Blocked as error:
                parts[error.index] += "~"
                wanted = "/".join(parts) + (f"~{number}" if number else "")
    raise SinkFailed(f"{output.root / path} and {NAMES_TRIED_MAX} more names are taken")


def _stands(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_named(file: OutputFile, output: OutputFiles) -> bool:
    """Return whether an earlier attempt, which then found no room, has named *file* already."""
    status = output.scratch_of(file).stat()
    return safe_open.inode(output.root, file.path) == (status.st_dev, status.st_ino)


def _link(file: OutputFile, output: OutputFiles) -> bool:
    with safe_open.folder_of(output.root, file.path) as (folder, name):
        try:
            # Unlike a rename, a link never replaces an existing file.
            os.link(output.scratch_of(file), name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
    return True


def _sync(marks: Mapping[OutputFile, FileMark], new: list[OutputFile], output: OutputFiles) -> None:
    kept = {file: mark.length for file, mark in marks.items() if file.stage is not Stage.GONE}
    folders = sorted({folder for file in new for folder in safe_open.folders_of(file.path)})
    try:
        is_many = len(kept) + len(folders) > FILES_ONE_BY_ONE_MAX
        if is_many and output.sync_all(kept):
            return
        for file, length in kept.items():
            output.sync(file, length)
        for folder in folders:
            safe_open.sync_folder(output.root, folder)
    except OSError as error:
        # Not repeated, not even for a full disk: the kernel reports the error once, and success
        # after that.
        raise SinkFailed(
            f"{output.root}: what was written is not durable: {error}; look at the disk, then "
            "start again"
        ) from error


def recover(state: State, output: OutputFiles) -> None:
    """Finish or drop renames and compressions, remove what was never committed, cut files to their
    committed lengths, and load them.
    """
    found = state.files()
    kept: dict[int, FileRow] = {}
    lost: dict[int, int] = {}
    for number, row in found.items():
        lost_before = output.damage.bytes
        recovered = _recover(number, row, output)
        lost[number] = output.damage.bytes - lost_before
        if recovered is not None:
            kept[number] = recovered
    gone = [number for number in found if number not in kept]
    changed = {number: row for number, row in kept.items() if row is not found[number]}
    if gone or changed:
        state.recover(changed, gone=gone, lost=lost)
        log.info("files recovered", extra={"changed": len(changed), "gone": len(gone)})
    _empty(output)
    output.load(kept)


def _recover(number: int, row: FileRow, output: OutputFiles) -> FileRow | None:
    """Return the row of the file as it is now; None where it is gone."""
    if row.stage in (Stage.NEW, Stage.GONE):
        if row.stage is Stage.GONE or _is_scratch(number, row, output):
            safe_open.remove(output.root, row.path)
            safe_open.prune(output.root, row.path)
        return None
    if row.moving_to:
        row = moved(row, output.root)
    if row.packing_to:
        row = packed(row, output.root)
    return _packed(row, output) if row.stage is Stage.PACKED else _cut(row, output)


def _is_scratch(number: int, row: FileRow, output: OutputFiles) -> bool:
    """Return whether the file at an announced name is ours, and not of another program."""
    try:
        status = (output.scratch / str(number)).stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return safe_open.inode(output.root, row.path) == (status.st_dev, status.st_ino)


def _packed(row: FileRow, output: OutputFiles) -> FileRow | None:
    """Return the row of a compressed file; None where it is gone. Of one that was cut, the part
    that is left can still be read.
    """
    try:
        size = safe_open.size(output.root, row.path)
    except (FileNotFoundError, NotAFile, Blocked) as error:
        output.damage.add(row.path, row.length, str(error))
        return None
    if size >= row.size:
        return row
    # As if each part of it were compressed alike: reading it all would hold up the start.
    lost = row.length - row.length * size // row.size
    output.damage.add(row.path, lost, "the compressed file is shorter than it was")
    return row._replace(size=size)


def _cut(row: FileRow, output: OutputFiles) -> FileRow | None:
    """Cut the file to its committed length. A shorter one is damaged, and continues at its end."""
    try:
        descriptor = safe_open.open_file(output.root, row.path, os.O_RDWR)
    except (FileNotFoundError, NotAFile, Blocked) as error:
        output.damage.add(row.path, row.length, str(error))
        return None
    try:
        size = os.fstat(descriptor).st_size
        if size > row.length:
            os.ftruncate(descriptor, row.length)
            # After a power cut, the bytes must not reappear behind a file that no longer grows.
            os.fsync(descriptor)
        if size >= row.length:
            return row
    finally:
        os.close(descriptor)
    output.damage.add(row.path, row.length - size, "the file is shorter than what was committed")
    return row._replace(length=size, tail=None)


def _empty(output: OutputFiles) -> None:
    """Remove all scratch names: a committed file has another name, and no other file is needed."""
    for path in output.scratch.iterdir():
        path.unlink()
