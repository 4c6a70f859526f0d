"""Runs where a collector's files are, in its pod or beside its volume: lists them, or sends them.

It is started as ``python -m logpipeline_cli.cluster.far``, takes one line of JSON, and answers with
lines of JSON (list) or with frames (send). A file is asked for by what it is and not by its name,
from an offset on: so a stream that broke off is taken up where it ended.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from logpipeline_cli.cluster.entries import Entry, Key
from logpipeline_cli.cluster.frames import Kind, write_frame
from logpipeline_cli.committed import ATTEMPTS_MAX, content_of, files_in
from logpipeline_cli.errors import CliError
from logpipeline_collector.files.committed import CommittedFile

# A request names each file that is wanted.
REQUEST_BYTES_MAX = 256 * 1024 * 1024
# Descriptors are few, and a look at the list is dear.
FILES_AT_ONCE = 128


@dataclass(slots=True)
class Archive:
    """The collectors' folders that can be seen from here, by collector, and whose files count."""

    folders: dict[str, Path]
    group: str
    host: str | None = None
    glob: str | None = None
    _rows: dict[Key, Entry] = field(default_factory=dict)

    def list(self) -> Iterator[Entry]:
        """Yield what is committed now.

        Raises:
            CliError: a collector's state cannot be read.
        """
        members = {folder.absolute(): member for member, folder in self.folders.items()}
        for folder, file in files_in(list(members), self.group):
            if self._is_wanted(file):
                yield _entry(members[folder], file)

    def open_all(self, keys: Sequence[Key], stack: ExitStack) -> dict[Key, tuple[Entry, BinaryIO]]:
        """Open those of *keys* that are there still, as they are then; *stack* closes them.

        A name may be another file's by the time it is opened, unless the list, read again, says
        the same as before.

        Raises:
            CliError: they are rotated faster than they can be opened.
        """
        left, opened = set(keys), dict[Key, tuple[Entry, BinaryIO]]()
        rows = self._look(left)
        for _ in range(ATTEMPTS_MAX):
            tried = {key: _open(rows[key], stack) for key in left if key in rows}
            newer = self._look(left)
            for key, file in tried.items():
                # A rotated file's name is its own for ever.
                now = rows[key] if rows[key].is_rotated else newer.get(key)
                if file is not None and now is not None and now.file == rows[key].file:
                    opened[key] = (now, file)
            left = {key for key in left if key in newer and key not in opened}
            if not left:
                return opened
            rows = newer
        raise CliError(
            "files are rotated faster than they can be opened; raise "
            "spec.collectors.rotation.maxBytes"
        )

    def _look(self, keys: set[Key]) -> dict[Key, Entry]:
        return {entry.key: entry for entry in self.list() if entry.key in keys}

    def _is_wanted(self, file: CommittedFile) -> bool:
        if self.host is not None and file.host != self.host:
            return False
        glob = self.glob
        return glob is None or fnmatchcase(file.name, glob) or fnmatchcase(file.place, glob)


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer one request; return an exit code."""
    request = json.loads(stdin.readline(REQUEST_BYTES_MAX))
    archive = Archive(
        folders=folders_of(request), group=request["group"],
        host=request.get("host"), glob=request.get("glob"),
    )  # fmt: skip
    pieces = request.get("pieces")
    if pieces is None:
        return _list(archive, stdout)
    return _send(archive, [(Key(*key), offset) for *key, offset in pieces], stdout)


def _list(archive: Archive, stdout: BinaryIO) -> int:
    try:
        for entry in archive.list():
            stdout.write(entry.encode().encode() + b"\n")
        last: dict[str, Any] = {"done": True}
    except CliError as error:
        last = {"failed": str(error)}
    stdout.write(json.dumps(last).encode() + b"\n")
    return 0


def _send(archive: Archive, pieces: Iterable[tuple[Key, int]], stdout: BinaryIO) -> int:
    left = iter(pieces)
    try:
        while batch := list(islice(left, FILES_AT_ONCE)):
            with ExitStack() as stack:
                opened = archive.open_all([key for key, _ in batch], stack)
                for key, offset in batch:
                    _send_one(opened.get(key), offset, stdout)
    except CliError as error:
        write_frame(stdout, Kind.FAILED, str(error).encode())
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        text = f"{error.strerror or error}: {error.filename}"
        write_frame(stdout, Kind.FAILED, text.encode("utf-8", "backslashreplace"))
    else:
        write_frame(stdout, Kind.DONE)
    return 0


def _send_one(found: tuple[Entry, BinaryIO] | None, offset: int, stdout: BinaryIO) -> None:
    if found is None:
        write_frame(stdout, Kind.LOST)
        return
    entry, file = found
    for chunk in content_of(file, entry.bytes):
        if offset >= len(chunk):
            offset -= len(chunk)
            continue
        write_frame(stdout, Kind.DATA, chunk[offset:])
        offset = 0
    write_frame(stdout, Kind.END)


def _open(entry: Entry, stack: ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(Path(entry.file).open("rb"))
    except FileNotFoundError:
        # Renamed or removed since; the next look says which.
        return None


def _entry(member: str, file: CommittedFile) -> Entry:
    return Entry(
        member=member,
        partition=file.partition,
        place=file.place,
        begun_ns=file.begun_ns,
        ended_ns=file.rotated_ns if file.is_rotated else _written_ns(file),
        name=file.name,
        host=file.host,
        bytes=file.length,
        is_rotated=file.is_rotated,
        is_compressed=file.is_compressed,
        file=str(file.path),
    )


def _written_ns(file: CommittedFile) -> int:
    try:
        return file.path.stat().st_mtime_ns
    except OSError:
        return file.begun_ns


def folders_of(request: dict[str, Any]) -> dict[str, Path]:
    """Return the folders that are asked for by name, and those below a folder that several
    collectors share.
    """
    folders = {member: Path(path) for member, path in request["folders"].items()}
    shared = request.get("shared")
    if shared is not None:
        name = re.compile(re.escape(shared["prefix"]) + r"\d+")
        for path in sorted(Path(shared["folder"]).iterdir()):
            if path.is_dir() and name.fullmatch(path.name) and path.name not in shared["without"]:
                folders.setdefault(path.name, path)
    return folders


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
