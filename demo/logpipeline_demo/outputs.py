"""Finds and reads the collectors' files, rotated and compressed ones included, as the chains in
which they were written; and counts their lines while the demo runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logpipeline.codecs import DAMAGES, codec_of, unpacked
from logpipeline.listing import files_below

CHUNK_BYTES = 1 << 20
_ROTATED = re.compile(r"(?P<active>.+)\.\d{8}-\d{6}\.\d{6,}(\.gz|\.zst)?")
# A file with a temporary name is incomplete; its content is still in another file.
_UNFINISHED_SUFFIX = ".tmp"


class Location(NamedTuple):
    """A place in the collectors' files; the offset is in the uncompressed file."""

    path: Path
    offset: int

    def __str__(self) -> str:
        return f"{self.path}:{self.offset}"


@dataclass(frozen=True, slots=True)
class OutputChain:
    """One collected log in one collector's folder: its files, oldest first."""

    place: str  # path of the active file, relative to the folder's logs
    files: tuple[Path, ...]


def find_chains(outputs: Iterable[Path]) -> list[OutputChain]:
    """Return the chains below *outputs*: collectors' folders, or folders of these."""
    return [chain for logs in _logs_folders(outputs) for chain in _chains_below(logs)]


def _logs_folders(outputs: Iterable[Path]) -> Iterator[Path]:
    for folder in outputs:
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is no folder: name the collectors' data folders")
        inside = [path / "logs" for path in sorted(folder.iterdir()) if (path / "logs").is_dir()]
        if (folder / "logs").is_dir():
            yield folder / "logs"
        elif inside:
            yield from inside
        else:
            yield folder


def _chains_below(logs: Path) -> Iterator[OutputChain]:
    rotated: dict[str, list[Path]] = {}
    active: dict[str, Path] = {}
    for path in sorted(files_below(logs)):
        place = path.relative_to(logs).as_posix()
        if path.suffix == _UNFINISHED_SUFFIX:
            continue
        if match := _ROTATED.fullmatch(place):
            rotated.setdefault(match["active"], []).append(path)
        else:
            active[place] = path
    for place in sorted({*rotated, *active}):
        older = sorted(rotated.get(place, []), key=lambda path: path.name)
        newest = [active[place]] if place in active else []
        yield OutputChain(place, (*older, *newest))


class ChainStream:
    """The bytes of a chain as one stream, with the location of each byte."""

    def __init__(self, chain: OutputChain, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.damaged: list[tuple[Path, str]] = []
        self.buffer = b""
        self._start = 0  # of the buffer, in the chain
        self._files: list[tuple[int, Path]] = []
        self._chunks = self._read(chain.files, chunk_bytes)

    def fill(self, used: int) -> bool:
        """Drop the first *used* bytes of the buffer and add what comes next; False at the end."""
        chunk = next(self._chunks, b"")
        self.buffer = self.buffer[used:] + chunk
        self._start += used
        return bool(chunk)

    def location(self, position: int) -> Location:
        """Return the location of the byte at *position* of the buffer."""
        offset = self._start + position
        start, path = next(
            (start, path) for start, path in reversed(self._files) if start <= offset
        )
        return Location(path, offset - start)

    def _read(self, files: Iterable[Path], chunk_bytes: int) -> Iterator[bytes]:
        read = 0
        for path in files:
            self._files.append((read, path))
            try:
                for chunk in read_file(path, chunk_bytes):
                    read += len(chunk)
                    yield chunk
            except DAMAGES as error:
                self.damaged.append((path, str(error) or type(error).__name__))


def read_file(path: Path, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the uncompressed content of *path* in pieces."""
    codec = codec_of(path.name)
    with path.open("rb") as file:
        content = codec.open(file) if codec is not None else file
        yield from iter(lambda: content.read(chunk_bytes), b"")


class Size(NamedTuple):
    """The uncompressed content of a file, in lines and bytes."""

    lines: int
    bytes: int


def size_of(path: Path) -> Size:
    """Return the size of *path*, which may be compressed."""
    lines = size = 0
    for chunk in read_file(path):
        lines += chunk.count(b"\n")
        size += len(chunk)
    return Size(lines, size)


def lines_by_place(outputs: Iterable[Path]) -> dict[str, int]:
    """Return the number of collected lines at each place, in all of *outputs* together."""
    counts: dict[str, int] = {}
    for chain in find_chains(outputs):
        lines = sum(size_of(path).lines for path in chain.files)
        counts[chain.place] = counts.get(chain.place, 0) + lines
    return counts


_NOTHING = Size(0, 0)


@dataclass(frozen=True, slots=True)
class Collected:
    """The uncompressed content of all files: *lines* by place, and *bytes*."""

    lines: dict[str, int]
    bytes: int
    files: int

    @property
    def total(self) -> int:
        """All lines."""
        return sum(self.lines.values())


@dataclass(slots=True)
class _Active:
    """The position in the newest file of a log, which is another file after each rotation."""

    rotations: int = -1
    size: Size = _NOTHING


@dataclass(slots=True)
class CollectedCounter:
    """Counts lines in the files below *collectors*; each call reads only new bytes. (The
    collectors' own counters start again when a partition moves, and are what the demo tests.)
    """

    collectors: Path
    _rotated: dict[Path, Size] = field(default_factory=dict)
    _active: dict[Path, _Active] = field(default_factory=dict)

    def look(self) -> Collected:
        """Return the present counts; a file that is renamed meanwhile counts at the next call."""
        folders = [path for path in sorted(self.collectors.glob("*")) if path.is_dir()]
        lines: dict[str, int] = {}
        files = size = 0
        for chain in find_chains(folders):
            sizes = list(self._sizes(chain))
            lines[chain.place] = lines.get(chain.place, 0) + sum(each.lines for each in sizes)
            size += sum(each.bytes for each in sizes)
            files += len(sizes)
        return Collected(lines, size, files)

    def _sizes(self, chain: OutputChain) -> list[Size]:
        # A rotated file and its compressed successor, which exist together for a moment, are one.
        rotated = {_plain(path): path for path in chain.files if not _is_active(path, chain)}
        sizes = [self._rotated_size(name, path) for name, path in rotated.items()]
        newest = chain.files[-1]
        if _is_active(newest, chain):
            sizes.append(self._active_size(newest, len(rotated)))
        return sizes

    def _rotated_size(self, name: Path, path: Path) -> Size:
        if name not in self._rotated:
            try:
                self._rotated[name] = size_of(path)
            except FileNotFoundError:
                return _NOTHING
        return self._rotated[name]

    def _active_size(self, path: Path, rotations: int) -> Size:
        active = self._active.setdefault(path, _Active())
        if active.rotations != rotations:
            active.rotations, active.size = rotations, _NOTHING
        try:
            with path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < active.size.bytes:
                    # After a crash a collector truncates its file to the committed length.
                    active.size = _NOTHING
                file.seek(active.size.bytes)
                new = file.read()
        except FileNotFoundError:
            return _NOTHING
        active.size = Size(active.size.lines + new.count(b"\n"), active.size.bytes + len(new))
        return active.size


def _is_active(path: Path, chain: OutputChain) -> bool:
    return path.as_posix().endswith(f"/{chain.place}")


def _plain(path: Path) -> Path:
    return path.with_name(unpacked(path.name))
