"""The program that lists or sends a collector's files, started in the collector's pod, or in a pod
that mounts its volume.

It is started as ``python -m logpipeline_cli.cluster.remote_agent``. It reads a request, one line of
JSON, and answers with lines of JSON (list) or with frames (send). A request identifies a file by
its key and not by its name, and gives an offset: so a stream that broke off continues where it
ended.

Frames mark the end of each file, a file that is gone, and the end of all, whatever bytes a file
holds; so the reader notices a stream that broke off.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from logpipeline import json_text
from logpipeline_cli.committed import (
    ATTEMPTS_MAX,
    Incomplete,
    content_of,
    files_in,
    names_of,
    open_first,
)
from logpipeline_cli.errors import CliError
from logpipeline_cli.file_entries import Entry, Key

# A request names each file that is wanted.
REQUEST_BYTES_MAX = 256 * 1024 * 1024
# So many files are opened for each listing: descriptors are few, and listings take long.
FILES_AT_ONCE = 128
# Protects the reader: a longer frame was not written by this program.
FRAME_BYTES_MAX = 1024 * 1024
_HEAD = struct.Struct(">cI")


class Kind(Enum):
    """The kind of a frame."""

    DATA = b"D"  # the next bytes of the file
    END = b"E"  # the file is complete
    LOST = b"L"  # the file, or the rest of it, is not there
    FAILED = b"X"  # the reason why nothing follows
    DONE = b"Z"  # all files were sent


class StreamCut(Exception):
    """The stream ended before it was complete."""


class StreamBroken(Exception):
    """The stream does not consist of frames: another program wrote into it."""


def write_frame(stream: BinaryIO, kind: Kind, data: bytes = b"") -> None:
    """Write one frame."""
    assert len(data) <= FRAME_BYTES_MAX
    stream.write(_HEAD.pack(kind.value, len(data)) + data)


def read_frame(stream: BinaryIO) -> tuple[Kind, bytes]:
    """Return the next frame.

    Raises:
        StreamCut: the stream ends before the end of a frame.
        StreamBroken: what follows is not a frame.
    """
    code, size = _HEAD.unpack(_exactly(stream, _HEAD.size))
    try:
        kind = Kind(code)
    except ValueError:
        raise StreamBroken(f"a frame begins with {code!r}") from None
    if size > FRAME_BYTES_MAX:
        raise StreamBroken(f"a frame has {size} bytes")
    return kind, _exactly(stream, size)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    # A buffered stream returns less only at its end.
    data = stream.read(size) if size else b""
    if len(data) < size:
        raise StreamCut(f"received {len(data)} of {size} bytes")
    return data


@dataclass(slots=True)
class FolderFiles:
    """The files in *folders*, by collector, restricted to one *group*, and if given to one *host*
    and to paths that match *glob*.
    """

    folders: dict[str, Path]
    group: str
    host: str | None = None
    glob: str | None = None

    def list(self) -> Iterator[Entry]:
        """Yield the files that are committed now.

        Raises:
            CliError: a collector's state cannot be read.
        """
        members = {folder.absolute(): member for member, folder in self.folders.items()}
        for folder, file in files_in(
            list(members), group=self.group, host=self.host, glob=self.glob
        ):
            yield Entry.of(members[folder], file)

    def open_all(self, keys: Sequence[Key], stack: ExitStack) -> dict[Key, tuple[Entry, BinaryIO]]:
        """Open those of *keys* that still exist, as they are now; *stack* closes them.

        When a name is opened, it may already be another file's. So the files are listed again
        afterwards: where both listings agree, the right file was opened.

        Raises:
            CliError: files are rotated faster than they can be opened.
        """
        left, opened = set(keys), dict[Key, tuple[Entry, BinaryIO]]()
        rows = self._look(left)
        for _ in range(ATTEMPTS_MAX):
            tried = {key: _open(rows[key], stack) for key in left if key in rows}
            newer = self._look(left)
            for key, file in tried.items():
                # The name of a rotated file is never used again.
                now = rows[key] if rows[key].is_rotated else newer.get(key)
                if file is not None and now is not None and now.file == rows[key].file:
                    opened[key] = (now, file)
            # The newer listing has the same name, and there is no such file: it was removed.
            gone = {
                key
                for key, file in tried.items()
                if file is None and key in newer and newer[key].file == rows[key].file
            }
            left = {key for key in left - gone if key in newer and key not in opened}
            if not left:
                return opened
            rows = newer
        raise CliError(
            "files are rotated faster than they can be opened; raise "
            "spec.collectors.rotation.maxBytes"
        )

    def _look(self, keys: set[Key]) -> dict[Key, Entry]:
        return {entry.key: entry for entry in self.list() if entry.key in keys}


def main(stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Answer one request; return an exit code."""
    request = json_text.parse(stdin.readline(REQUEST_BYTES_MAX))
    files = FolderFiles(
        folders=folders_of(request), group=request["group"],
        host=request.get("host"), glob=request.get("glob"),
    )  # fmt: skip
    pieces = request.get("pieces")
    if pieces is None:
        return _list(files, stdout)
    return _send(files, [(Key(*key), offset) for *key, offset in pieces], stdout)


def _list(files: FolderFiles, stdout: BinaryIO) -> int:
    try:
        for entry in files.list():
            stdout.write(entry.encode().encode() + b"\n")
        last: dict[str, Any] = {"done": True}
    except CliError as error:
        last = {"failed": str(error)}
    stdout.write(json.dumps(last).encode() + b"\n")
    return 0


def _send(files: FolderFiles, pieces: Iterable[tuple[Key, int]], stdout: BinaryIO) -> int:
    left = iter(pieces)
    try:
        while batch := list(islice(left, FILES_AT_ONCE)):
            with ExitStack() as stack:
                opened = files.open_all([key for key, _ in batch], stack)
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
    try:
        for chunk in content_of(file, entry.bytes):
            if offset >= len(chunk):
                offset -= len(chunk)
                continue
            write_frame(stdout, Kind.DATA, chunk[offset:])
            offset = 0
    except Incomplete:
        write_frame(stdout, Kind.LOST)
    else:
        write_frame(stdout, Kind.END)


def _open(entry: Entry, stack: ExitStack) -> BinaryIO | None:
    path = Path(entry.file)
    names = names_of(path, is_compressed=entry.is_compressed) if entry.is_rotated else [path]
    # One that is not there was renamed or removed since; the next listing shows which.
    file = open_first(names)
    return None if file is None else stack.enter_context(file)


def folders_of(request: dict[str, Any]) -> dict[str, Path]:
    """Return the folders that *request* names, and those below a folder that several collectors
    share, by collector.
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
