"""Removes rotated files, oldest first: by age, when the collector's files take too much, and when
the disk gets full. An active file is never removed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from logpipeline.failpoints import reach
from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.errors import disk_error
from logpipeline_collector.archive.output import OutputFile, OutputFiles
from logpipeline_collector.archive.rows import Rotations, Stage
from logpipeline_collector.archive.state import State

log = logging.getLogger(__name__)

# In one go; the next ones follow with the next maintenance.
REMOVALS_AT_ONCE_MAX = 256


class Retention:
    """Removes files of one partition; limits of size are those of all partitions together.

    *removed* counts files by reason: age, size, disk.
    """

    def __init__(self, config: ArchiveConfig, output: OutputFiles, state: State) -> None:
        self._config = config
        self._output = output
        self._state = state
        self._usage = output.descriptors.usage
        self.removed: Counter[str] = Counter()

    def run(
        self, now_s: float, rotated: dict[int, OutputFile], rotations: dict[str, Rotations]
    ) -> None:
        """Remove of *rotated* (oldest first) what is due at *now_s*, and the *rotations* that
        nobody continues.
        """
        self.report(rotated)
        due = {file.number: reason for file, reason in self._due(now_s, rotated)}
        if not due:
            return
        files = [rotated[number] for number in due]
        self._remove(files, rotated, rotations)
        self.removed.update(due.values())
        log.info(
            "old files removed",
            extra={"files": len(files), "first": files[0].path, "reason": due[files[0].number]},
        )

    def report(self, rotated: dict[int, OutputFile]) -> None:
        """Tell the other partitions how much is kept here, and since when the oldest of *rotated*
        is.
        """
        oldest = next(iter(rotated.values()), None)
        self._usage.report(
            self,
            size=self._output.disk_bytes,
            oldest_ns=oldest.rotated_ns if oldest is not None else None,
        )

    def close(self) -> None:
        """Count this partition's files no more."""
        self._usage.forget(self)

    def _due(
        self, now_s: float, rotated: dict[int, OutputFile]
    ) -> Iterator[tuple[OutputFile, str]]:
        oldest_ns = int((now_s - self._config.retention_age_s) * 1e9)
        surplus, lacking = self._surplus_bytes(), self._lacking_bytes()
        # Another partition with an older file goes first, when its turn comes.
        turn_ns = self._usage.oldest_of_others(self)
        files = [file for file in rotated.values() if self._is_settled(file)]
        for file in files[:REMOVALS_AT_ONCE_MAX]:
            if file.rotated_ns <= oldest_ns:
                reason = "age"
            elif surplus > 0 and file.rotated_ns <= turn_ns:
                reason = "size"
            elif lacking > 0 and file.rotated_ns <= turn_ns:
                reason = "disk"
            else:
                return
            surplus -= file.disk_bytes
            lacking -= file.disk_bytes
            yield file, reason

    def _is_settled(self, file: OutputFile) -> bool:
        committed = file.committed
        is_busy = committed is None or bool(committed.packing_to)
        return not is_busy and file not in self._output.dirty

    def _surplus_bytes(self) -> int:
        limit = self._config.retention_bytes
        return self._usage.size - limit if limit is not None else 0

    def _lacking_bytes(self) -> int:
        free, total = self._output.descriptors.free_bytes(self._output.root)
        return total * self._config.min_free_percent // 100 - free

    def _remove(
        self,
        files: list[OutputFile],
        rotated: dict[int, OutputFile],
        rotations: dict[str, Rotations],
    ) -> None:
        rows = {f.number: f.committed._replace(stage=Stage.GONE) for f in files if f.committed}
        self._state.change(rows)
        reach("archive.retain-noted")
        try:
            for file in files:
                beneath.remove(self._output.root, file.path)
                reach("archive.retain-removed")
                beneath.prune(self._output.root, file.path)
        except OSError as error:
            raise disk_error(error, "remove old files", self._output.root) from error
        for file in files:
            del rotated[file.number]
            self._output.forget(file)
        kept = {file.place for file in list(self._output.files.values())}
        unused: dict[str, Rotations | None] = {
            file.place: None for file in files if file.place not in kept
        }
        self._state.change({}, gone=rows, rotations=unused)
        for place in unused:
            rotations.pop(place, None)
