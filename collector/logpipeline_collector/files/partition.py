"""The files of one partition, and of one collector: the sink that is a folder.

A folder holds ``logs/``, the files that people read, and ``state/<group>/p<N>.sqlite`` beside them,
which says how much of each file is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Self

from logpipeline.deduplication import Range, SourceState
from logpipeline.filelock import FileLock, FileLocked
from logpipeline.wire import Batch
from logpipeline_collector.config import FilesConfig
from logpipeline_collector.files import commit as commits
from logpipeline_collector.files.commit import FileMark
from logpipeline_collector.files.maintenance import Upkeep
from logpipeline_collector.files.output import Descriptors, OutputFile, OutputFiles, Writer
from logpipeline_collector.files.state import State
from logpipeline_collector.files.volume import Volume
from logpipeline_collector.sink import LocalCommit, Removed, SinkBusy, SourceName

PRIVATE_MODE = 0o750
LOCK_MODE = 0o640

Marks = dict[OutputFile, FileMark]


class PartitionFiles:
    """The sink of one partition; see `logpipeline_collector.sink.Sink`."""

    def __init__(
        self, config: FilesConfig, partition: int, descriptors: Descriptors, lock: FileLock
    ) -> None:
        self.dirty_bytes = 0
        self._file_lock = lock
        # Held by commits and maintenance, which never overlap.
        self._working = threading.Lock()
        path = config.state(partition)
        self._state = State(path)
        self._volume = Volume(config.logs)
        self._output = OutputFiles(
            config.logs,
            path.with_suffix(".new"),
            descriptors,
            self._volume,
            config.rotate_bytes,
            self._state,
        )
        self._writer = Writer(config, partition, self._output)
        self._upkeep = Upkeep(config, self._output, self._state)
        # What may have to be undone must look as it did.
        self._is_unconfirmed = False
        self._load()

    @classmethod
    def open(cls, config: FilesConfig, partition: int, descriptors: Descriptors) -> Self:
        """Open the partition's files, and undo the writes that were not committed.

        Raises:
            SinkBusy: another process has them open.
            SinkBroken: the state cannot be read; the message says what to do.
            OSError: the folder cannot be written, or its file system has no locks.
        """
        path = config.state(partition)
        path.with_suffix(".new").mkdir(PRIVATE_MODE, parents=True, exist_ok=True)
        config.logs.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock.take(path.with_suffix(".lock"), LOCK_MODE)
        except FileLocked:
            raise SinkBusy(
                f"partition {partition} in {config.folder} is written by another process; give "
                "each collector a folder of its own"
            ) from None
        try:
            return cls(config, partition, descriptors, lock)
        except BaseException:
            lock.close()
            raise

    @property
    def lines_written(self) -> int:
        """Lines that were written since the opening."""
        return self._writer.lines

    @property
    def bytes_written(self) -> int:
        """Bytes that were written since the opening."""
        return self._writer.bytes

    @property
    def damaged_bytes(self) -> int:
        """Committed bytes that the disk or another program took away, since the first opening. What
        cannot be read is counted while it is known, and found again after the next opening.
        """
        return self._state.damage.bytes + self._upkeep.unreadable_bytes

    @property
    def newly_damaged_bytes(self) -> int:
        """Those of `damaged_bytes` that were found by this opening, and since."""
        return max(0, self.damaged_bytes - self._state.damaged_before)

    @property
    def removed(self) -> Removed:
        """What retention removed since the opening."""
        return self._upkeep.removed

    def write(
        self, host: str, batch: Batch, data: bytes, ranges: tuple[Range, ...], time_ns: int
    ) -> None:
        """See `Sink`."""
        with self._output.lock:
            self.dirty_bytes += self._writer.write(host, batch, data, ranges, time_ns)

    def write_foreign(self, host: str, payload: bytes, time_ns: int) -> None:
        """See `Sink`."""
        with self._output.lock:
            self.dirty_bytes += self._writer.write_foreign(host, payload, time_ns)

    def mark(self) -> Marks:
        """Return how the files are that were written since the last mark."""
        with self._output.lock:
            marks = {file: FileMark(file.length, file.tail) for file in self._output.dirty}
            self._output.dirty = {}
            self.dirty_bytes = 0
            return marks

    def commit(
        self, commit: LocalCommit, mark: Marks, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """See `Sink`."""
        with self._working:
            self._is_unconfirmed = True
            commits.write(commit, mark, sources, self._output, self._state)

    def confirm(self) -> None:
        """See `Sink`."""
        self._is_unconfirmed = False

    def undo(self) -> None:
        """See `Sink`."""
        with self._working:
            self._state.undo()
            self._load()

    def discard(self) -> None:
        """See `Sink`."""
        with self._working:
            self._load()

    def last(self) -> LocalCommit | None:
        """Return the last commit."""
        return self._state.last()

    def sources(self) -> dict[SourceName, SourceState]:
        """Return the state of each source as of the last commit."""
        return self._state.sources()

    def source_rows(self) -> list[tuple[str, str]]:
        """Return `sources` as it is stored."""
        return self._state.source_rows()

    def keep_succession(self, epoch: int, text: str) -> None:
        """See `Sink`."""
        with self._working:
            self._state.keep_succession(epoch, text)

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether `rotate` would rotate a file."""
        with self._output.lock:
            return self._upkeep.is_rotation_due(now_s)

    def rotate(self, now_s: float) -> None:
        """Rotate the files that are full or old."""
        with self._working:
            if not self._is_unconfirmed:
                self._upkeep.rotate(now_s)

    def maintain(self, now_s: float) -> None:
        """Rotate, compress and remove the files for which it is due."""
        with self._working:
            if not self._is_unconfirmed:
                self._upkeep.run(now_s, time.monotonic)

    def set_aside(self, now_s: float) -> None:
        """Rotate every file: another folder has lines that belong before the next ones."""
        with self._working:
            self._upkeep.set_aside(now_s)

    def close(self) -> None:
        """Close the files, and let another process open them."""
        with self._working:
            self._upkeep.close()
            self._output.close()
            self._volume.close()
            self._state.close()
            self._file_lock.close()

    def _load(self) -> None:
        """Bring the files, and what is known of them, to what is committed."""
        with self._output.lock:
            commits.recover(self._state, self._output)
            self._is_unconfirmed = False
            self.dirty_bytes = 0
        self._upkeep.load()


class FileStorage:
    """The files of all partitions of one collector: a `logpipeline_collector.sink.Storage`.

    Open files and limits of room are those of the whole folder, so the partitions share
    *descriptors*.
    """

    def __init__(self, config: FilesConfig, descriptors: Descriptors | None = None) -> None:
        self._config = config
        self._descriptors = descriptors or Descriptors(config.open_files_max)

    @property
    def open_files(self) -> int:
        """Files that are kept open."""
        return self._descriptors.count

    def partitions(self) -> list[int]:
        """Return the partitions that have a state in the folder."""
        names = (path.stem[1:] for path in self._config.state(0).parent.glob("p*.sqlite"))
        return sorted(int(name) for name in names if name.isdecimal())

    def open(self, partition: int) -> PartitionFiles:
        """Open the files of *partition*; see `PartitionFiles.open`."""
        return PartitionFiles.open(self._config, partition, self._descriptors)
