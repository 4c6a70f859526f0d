"""Sets an active file aside under a name with time and number; its bytes stay where they are, also
those that are not committed yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, islice, takewhile

from logpipeline.failpoints import reach
from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.errors import disk_error
from logpipeline_collector.archive.output import OutputFile, OutputFiles
from logpipeline_collector.archive.render import Tail
from logpipeline_collector.archive.rows import FileRow, Rotations, Stage
from logpipeline_collector.archive.state import State

# In one go; the next ones follow with the next maintenance.
ROTATIONS_AT_ONCE_MAX = 256
# A line whose end has not come in this time holds no file back any more.
OPEN_LINE_S_MAX = 600.0

HeldBack = Callable[[OutputFile, float], bool]


class Rotation:
    """Rotates the files of one partition."""

    def __init__(self, config: ArchiveConfig, output: OutputFiles, state: State) -> None:
        self._config = config
        self._output = output
        self._state = state

    def is_due(self, now_s: float) -> bool:
        """Return whether a file is to be rotated at *now_s*."""
        return bool(self._due(now_s))

    def run(self, now_s: float, rotations: dict[str, Rotations]) -> list[OutputFile]:
        """Rotate what is due at *now_s*, number it by *rotations*, and return it."""
        with self._output.lock:
            due = {file.number: file for file in self._due(now_s)}
        return self._rotate(due, now_s, rotations, self._is_held_back) if due else []

    def set_aside(self, now_s: float, rotations: dict[str, Rotations]) -> list[OutputFile]:
        """Rotate some of the files that have content, as `run` does, and return them; none are
        left when it returns none. Nobody may be writing.
        """
        with self._output.lock:
            left = (file for file in self._output.active.values() if _has_content(file))
            due = {file.number: file for file in islice(left, ROTATIONS_AT_ONCE_MAX)}
        # A line that goes on does so in somebody else's file.
        return self._rotate(due, now_s, rotations, lambda *_: False) if due else []

    def _rotate(
        self,
        due: dict[int, OutputFile],
        now_s: float,
        rotations: dict[str, Rotations],
        is_held_back: HeldBack,
    ) -> list[OutputFile]:
        moves: dict[OutputFile, FileRow] = {}
        changed: dict[str, Rotations] = {}
        for file in due.values():
            last = rotations.get(file.place, Rotations(1, 0))
            stamp_s = max(int(now_s), last.stamp_s)
            changed[file.place] = Rotations(last.number + 1, stamp_s)
            target = self._target(file, Rotations(last.number, stamp_s))
            assert file.committed is not None
            moves[file] = file.committed._replace(moving_to=target, rotated_ns=int(now_s * 1e9))
        self._state.change({f.number: row for f, row in moves.items()}, rotations=changed)
        reach("archive.rotate-intent")
        rotations.update(changed)
        return self._move(moves, is_held_back)

    def _move(self, moves: dict[OutputFile, FileRow], is_held_back: HeldBack) -> list[OutputFile]:
        moved = []
        try:
            for file, row in moves.items():
                with self._output.lock:
                    if is_held_back(file, row.rotated_ns / 1e9):
                        continue
                    beneath.rename(self._output.root, file.path, row.moving_to)
                    self._set_aside(file, row)
                moved.append(file)
                reach("archive.rotate-renamed")
            for folder in {beneath.folders_of(file.path)[-1] for file in moved}:
                beneath.sync_folder(self._output.root, folder)
        except OSError as error:
            raise disk_error(error, "rotate files", self._output.root) from error
        self._state.change({file.number: _settled(file, row) for file, row in moves.items()})
        reach("archive.rotate-noted")
        return moved

    def _set_aside(self, file: OutputFile, row: FileRow) -> None:
        del self._output.active[file.place]
        self._output.full.discard(file)
        file.path, file.stage, file.rotated_ns = row.moving_to, Stage.ROTATED, row.rotated_ns

    def _due(self, now_s: float) -> list[OutputFile]:
        # Active files stand in the order of their beginnings.
        oldest_ns = int((now_s - self._config.rotate_age_s) * 1e9)
        old = takewhile(lambda file: file.begun_ns <= oldest_ns, self._output.active.values())
        due = (file for file in chain(self._output.full, old) if self._may_go(file, now_s))
        return list(islice(due, ROTATIONS_AT_ONCE_MAX))

    def _may_go(self, file: OutputFile, now_s: float) -> bool:
        return _has_content(file) and not self._is_held_back(file, now_s)

    def _is_held_back(self, file: OutputFile, now_s: float) -> bool:
        """Return whether a line of *file* goes on: written, or as committed, to which a crash may
        take the file back.
        """
        if now_s - file.written_ns / 1e9 > OPEN_LINE_S_MAX:
            return False
        return _goes_on(file.tail) or (file.committed is not None and _goes_on(file.committed.tail))

    def _target(self, file: OutputFile, rotation: Rotations) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(rotation.stamp_s))
        target = f"{file.path}.{stamp}.{rotation.number:06d}"
        while any(beneath.exists(self._output.root, target + end) for end in ("", ".gz", ".zst")):
            target += "~"
        return target


def _has_content(file: OutputFile) -> bool:
    # What is not committed yet has no name to be changed; an empty file has nothing to keep.
    return file.committed is not None and file.committed.length > 0


def _goes_on(tail: Tail | None) -> bool:
    return tail is not None and tail.goes_on


def _settled(file: OutputFile, row: FileRow) -> FileRow:
    """Return the row of a file that was moved, or, held back, was not."""
    is_moved = file.stage is Stage.ROTATED
    settled = row._replace(
        path=file.path,
        stage=file.stage,
        rotated_ns=row.rotated_ns if is_moved else 0,
        moving_to="",
    )
    file.committed = settled
    return settled
