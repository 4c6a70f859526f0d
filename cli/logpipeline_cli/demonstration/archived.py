"""How many lines the collectors' files hold while the demo runs, counted in the files themselves.

The collectors' own counters start again when a partition moves, and they are what the demo tests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline.codecs import unpacked
from logpipeline_demo.outputs import OutputChain, Size, find_chains, size_of

_NOTHING = Size(0, 0)


@dataclass(frozen=True, slots=True)
class Archived:
    """What the files hold, uncompressed: *lines* by place, and all *bytes*."""

    lines: dict[str, int]
    bytes: int
    files: int

    @property
    def total(self) -> int:
        """All lines."""
        return sum(self.lines.values())


@dataclass(slots=True)
class _Active:
    """How far the newest file of a log was read; after another rotation it is another file."""

    rotations: int = -1
    size: Size = _NOTHING


@dataclass(slots=True)
class ArchiveCounter:
    """Counts lines in the files below *collectors*; each call reads only the bytes that are new."""

    collectors: Path
    _rotated: dict[Path, Size] = field(default_factory=dict)
    _active: dict[Path, _Active] = field(default_factory=dict)

    def look(self) -> Archived:
        """Return the counts of now; a file that is renamed meanwhile counts at the next call."""
        folders = [path for path in sorted(self.collectors.glob("*")) if path.is_dir()]
        lines: dict[str, int] = {}
        files = size = 0
        for chain in find_chains(folders):
            sizes = list(self._sizes(chain))
            lines[chain.place] = lines.get(chain.place, 0) + sum(each.lines for each in sizes)
            size += sum(each.bytes for each in sizes)
            files += len(sizes)
        return Archived(lines, size, files)

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
                    # A collector that was killed has taken back what it had not committed.
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
