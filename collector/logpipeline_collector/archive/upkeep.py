"""Sets full and old files aside, compresses them, and removes the oldest, a little at a time: the
partition commits nothing meanwhile.

Each step is announced in the state before it is done, so that recovery can finish or drop it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.output import OutputFile, OutputFiles
from logpipeline_collector.archive.packing import Packing
from logpipeline_collector.archive.retention import Retention
from logpipeline_collector.archive.rotation import Rotation
from logpipeline_collector.archive.rows import Rotations, Stage
from logpipeline_collector.archive.state import State


@dataclass(eq=False)
class Upkeep:
    """What is due on the files of one partition."""

    config: ArchiveConfig
    output: OutputFiles
    state: State
    rotated: dict[int, OutputFile] = field(default_factory=dict)  # oldest first
    rotations: dict[str, Rotations] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rotation = Rotation(self.config, self.output, self.state)
        self._packing = Packing(self.config.compression, self.output, self.state)
        self.retention = Retention(self.config, self.output, self.state)

    def load(self) -> None:
        """Know what is to be kept up, from files that were loaded."""
        self._packing.drop()
        rotated = [
            file
            for file in self.output.files.values()
            if file.stage in (Stage.ROTATED, Stage.PACKED)
        ]
        rotated.sort(key=lambda file: (file.rotated_ns, file.path))
        self.rotated = {file.number: file for file in rotated}
        self.rotations = self.state.rotations()
        self.retention.report(self.rotated)

    def run(self, now_s: float, clock: Callable[[], float]) -> None:
        """Do what is due at *now_s* (seconds since 1970), for as long as is bearable by *clock*.

        Raises:
            ArchiveFull: there is no room for it now.
            ArchiveFailed: the disk failed.
        """
        # First what makes room, for what needs some.
        self.retention.run(now_s, self.rotated, self.rotations)
        self.rotate(now_s)
        for file in self._packing.run(list(self.rotated.values()), clock):
            del self.rotated[file.number]
        # The others must know, before their turn, how old is what is here.
        self.retention.report(self.rotated)

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether a file is to be rotated at *now_s*."""
        return self._rotation.is_due(now_s)

    def rotate(self, now_s: float) -> None:
        """Rotate what is due at *now_s*."""
        for file in self._rotation.run(now_s, self.rotations):
            self.rotated[file.number] = file

    def set_aside(self, now_s: float) -> None:
        """Rotate every file that has content."""
        while moved := self._rotation.set_aside(now_s, self.rotations):
            self.rotated |= {file.number: file for file in moved}

    def close(self) -> None:
        """Leave a compression that is under way; it is begun again later."""
        self._packing.drop()
        self.retention.close()
