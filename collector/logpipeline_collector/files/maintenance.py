"""Rotates full and old files, compresses them, and removes the oldest, a little at a time: the
partition cannot commit meanwhile.

Each step is announced in the state before it is done, so that recovery can finish or drop it. Where
a full disk ends a step midway, the next round begins with the rest of it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Literal

from logpipeline.codecs import PACKED_IN, Packer
from logpipeline.failpoints import reach
from logpipeline_collector.config import FilesConfig
from logpipeline_collector.files import safe_open
from logpipeline_collector.files.intents import TEMPORARY_SUFFIX, packed
from logpipeline_collector.files.output import OutputFile, OutputFiles
from logpipeline_collector.files.render import Tail
from logpipeline_collector.files.safe_open import Blocked, NotAFile
from logpipeline_collector.files.state import FileRow, Rotations, Stage, State, disk_error
from logpipeline_collector.sink import FOR_ROOM, Removed

# How long one round may delay the partition's commits.
ROUND_S = 0.2
PIECE_BYTES = 1024 * 1024

log = logging.getLogger(__name__)

# In one go; the next ones follow with the next maintenance.
REMOVALS_AT_ONCE_MAX = 256

# In one go; the next ones follow with the next maintenance.
ROTATIONS_AT_ONCE_MAX = 256
# After this time a line without an end delays the rotation of its file no more.
OPEN_LINE_S_MAX = 600.0

HeldBack = Callable[[OutputFile, float], bool]


@dataclass(slots=True)
class _Work:
    file: OutputFile
    row: FileRow
    source: int
    target: int
    packer: Packer
    read: int = 0
    written: int = 0


class Unreadable(Exception):
    """*count* bytes of a file cannot be read, or are gone."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(why)
        self.count = count


class Packing:
    """Compresses one file after the other. *unreadable* are the bytes of each file that cannot be
    read: it is not tried again before the files are loaded anew.
    """

    def __init__(
        self,
        compression: Literal["gzip", "zstd", "none"],
        output: OutputFiles,
        state: State,
    ) -> None:
        codec = PACKED_IN.get(compression)
        self._suffix = codec.suffix if codec is not None else ""
        self._packer = codec.packer if codec is not None else None
        self._output = output
        self._state = state
        self._work: _Work | None = None
        # The file whose compression comes to its end, under its former name or the new one.
        self._ending: OutputFile | None = None
        self.unreadable: dict[int, int] = {}

    def run(self, rotated: dict[int, OutputFile], clock: Callable[[], float]) -> None:
        """Compress files of *rotated* for one round, and drop those that no longer exist."""
        if self._packer is None:
            return
        # Checked lazily: a file that is under way is packed by then, and must not be packed again.
        waiting = (file for file in list(rotated.values()) if self._is_ready(file))
        until_s = clock() + ROUND_S
        try:
            self._settle()
            while clock() < until_s:
                if self._work is None:
                    file = next(waiting, None)
                    if file is None:
                        break
                    self._begin(file, rotated)
                else:
                    self._go_on(self._work)
        except OSError as error:
            self._drop_work()
            raise disk_error(error, "compress files", self._output.root) from error

    def drop(self) -> None:
        """Leave the compression that is under way to recovery; it is begun again later."""
        self._drop_work()
        self._ending = None
        self.unreadable = {}

    def _drop_work(self) -> None:
        if self._work is not None:
            row = self._work.row
            self._work.file.committed = row._replace(packing_to="")
            safe_open.remove(self._output.root, row.packing_to + TEMPORARY_SUFFIX)
            self._release(self._work)

    def _release(self, work: _Work) -> None:
        os.close(work.source)
        os.close(work.target)
        self._work = None

    def _is_ready(self, file: OutputFile) -> bool:
        is_whole = file.committed is not None and file.committed.length == file.length
        is_readable = file.number not in self.unreadable
        return file.stage is Stage.ROTATED and is_whole and is_readable

    def _begin(self, file: OutputFile, rotated: dict[int, OutputFile]) -> None:
        try:
            source = safe_open.open_file(self._output.root, file.path, os.O_RDONLY)
        except (FileNotFoundError, Blocked, NotAFile) as error:
            # People who clean up by hand begin with old files.
            self._lose(file, str(error))
            del rotated[file.number]
            return
        try:
            self._work = self._announce(file, source)
        except BaseException:
            os.close(source)
            raise

    def _lose(self, file: OutputFile, why: str) -> None:
        damage = self._output.damage
        counted = damage.bytes
        damage.add(file.path, file.length, why)
        try:
            self._state.change({}, gone=[file.number])
        except BaseException:
            # It is lost again in the next round.
            damage.bytes = counted
            raise
        self._output.forget(file)

    def _announce(self, file: OutputFile, source: int) -> _Work:
        root = self._output.root
        target = file.path + self._suffix
        while any(safe_open.exists(root, target + end) for end in ("", TEMPORARY_SUFFIX)):
            target += "~"
        assert file.committed is not None
        assert self._packer is not None
        row = file.committed._replace(packing_to=target)
        self._state.change({file.number: row})
        reach("files.compress-intent")
        self._output.descriptors.close((self._output, file.number))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        temporary = safe_open.open_file(root, target + TEMPORARY_SUFFIX, flags)
        file.committed = row
        return _Work(file, row, source, temporary, self._packer())

    def _go_on(self, work: _Work) -> None:
        try:
            is_whole = self._advance(work)
        except Unreadable as error:
            # Damage of this file, which new lines do not wait for: it stays as it is.
            self._drop_work()
            self.unreadable[work.file.number] = error.count
            log.error(
                "a rotated file cannot be read, and is not compressed",
                extra={"path": work.file.path, "offset": work.read, "reason": str(error)},
            )
        else:
            if is_whole:
                self._finish(work)

    def _advance(self, work: _Work) -> bool:
        """Compress one piece; return whether it was the last one.

        Raises:
            Unreadable: the file has no such piece any more.
        """
        left = work.row.length - work.read
        size = min(PIECE_BYTES, left)
        try:
            data = os.pread(work.source, size, work.read)
        except OSError as error:
            raise Unreadable(size, str(error)) from error
        if size and not data:
            raise Unreadable(left, "it ends before its committed length")
        work.read += len(data)
        is_last = work.read == work.row.length
        packed = work.packer.compress(data) + (work.packer.flush() if is_last else b"")
        while packed:
            count = os.pwrite(work.target, packed, work.written)
            work.written += count
            packed = packed[count:]
        return is_last

    def _finish(self, work: _Work) -> None:
        root, target = self._output.root, work.row.packing_to
        os.fsync(work.target)
        reach("files.compress-written")
        self._release(work)
        self._ending = work.file
        safe_open.rename(root, target + TEMPORARY_SUFFIX, target)
        safe_open.sync_folder(root, safe_open.folders_of(target)[-1])
        reach("files.compress-renamed")
        self._settle()

    def _settle(self) -> None:
        """Go on with the compressed file in place of the other one, if it has its name."""
        file = self._ending
        if file is None:
            return
        assert file.committed is not None
        row = packed(file.committed, self._output.root)
        reach("files.compress-removed")
        self._state.change({file.number: row})
        self._ending = None
        if row.stage is Stage.PACKED:
            self._output.packed(file, row)
        else:
            file.committed = row


class Retention:
    """Removes files of one partition; limits of size are those of all partitions together."""

    def __init__(self, config: FilesConfig, output: OutputFiles, state: State) -> None:
        self._config = config
        self._output = output
        self._state = state
        self._usage = output.descriptors.usage
        # Noted in the state as gone, and not yet forgotten there.
        self._leaving: dict[int, OutputFile] = {}
        self.removed = Removed()

    def load(self) -> None:
        """Begin anew: recovery has finished what was begun."""
        self._leaving = {}

    def run(
        self, now_s: float, rotated: dict[int, OutputFile], rotations: dict[str, Rotations]
    ) -> None:
        """Remove the files of *rotated* (oldest first) that are due at *now_s*, and the *rotations*
        of places without files.
        """
        self._settle(rotations)
        self.report(rotated)
        due = list(self._due(now_s, rotated))
        if not due:
            return
        sizes = [(reason, file.disk_bytes) for file, reason in due]
        self._remove([file for file, _ in due], rotated, rotations)
        for reason, size in sizes:
            self.removed.add(reason, size, now_s)
        first, reason = due[0]
        log.log(
            logging.WARNING if reason == FOR_ROOM else logging.INFO,
            "old files removed",
            extra={"files": len(due), "first": first.path, "reason": reason},
        )

    def report(self, rotated: dict[int, OutputFile]) -> None:
        """Report to the other partitions how much is kept here, and the age of the oldest of
        *rotated*.
        """
        oldest = next(iter(rotated.values()), None)
        self._usage.report(
            self,
            size=self._output.disk_bytes,
            oldest_ns=oldest.rotated_ns if oldest is not None else None,
        )

    def close(self) -> None:
        """Stop counting this partition's files."""
        self._usage.forget(self)

    def _due(
        self, now_s: float, rotated: dict[int, OutputFile]
    ) -> Iterator[tuple[OutputFile, str]]:
        oldest_ns = int((now_s - self._config.retention_age_s) * 1e9)
        surplus, lacking = self._surplus_bytes(), self._lacking_bytes()
        # A partition with an older file goes first.
        turn_ns = self._usage.oldest_of_others(self)
        files = [file for file in rotated.values() if self._is_settled(file)]
        for file in files[:REMOVALS_AT_ONCE_MAX]:
            if file.rotated_ns <= oldest_ns:
                reason = "age"
            elif surplus > 0 and file.rotated_ns <= turn_ns:
                reason = "size"
            elif lacking > 0 and file.rotated_ns <= turn_ns:
                reason = FOR_ROOM
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
        damage = self._output.damage
        counted = damage.bytes
        for file in files:
            # Before the state says that we remove it: from then on, nothing shows who did.
            if not safe_open.exists(self._output.root, file.path):
                damage.add(file.path, file.length, "another program had removed it")
        try:
            self._state.change(rows)
        except BaseException:
            # It is found again in the next round.
            damage.bytes = counted
            raise
        reach("files.retain-noted")
        for file in files:
            self._leaving[file.number] = rotated.pop(file.number)
        self._settle(rotations)

    def _settle(self, rotations: dict[str, Rotations]) -> None:
        """Remove the files that are noted as gone, and forget them."""
        if not self._leaving:
            return
        try:
            for file in self._leaving.values():
                safe_open.remove(self._output.root, file.path)
                reach("files.retain-removed")
                safe_open.prune(self._output.root, file.path)
                self._output.forget(file)
        except OSError as error:
            raise disk_error(error, "remove old files", self._output.root) from error
        kept = {file.place for file in list(self._output.files.values())}
        unused: dict[str, Rotations | None] = {
            file.place: None for file in self._leaving.values() if file.place not in kept
        }
        self._state.change({}, gone=self._leaving, rotations=unused)
        self._leaving = {}
        for place in unused:
            rotations.pop(place, None)


class Rotation:
    """Rotates the files of one partition."""

    def __init__(self, config: FilesConfig, output: OutputFiles, state: State) -> None:
        self._config = config
        self._output = output
        self._state = state
        # Announced in the state, and not yet settled there.
        self._moving: dict[OutputFile, FileRow] = {}

    def load(self) -> None:
        """Begin anew: recovery has finished what was begun."""
        self._moving = {}

    def is_due(self, now_s: float) -> bool:
        """Return whether a file is to be rotated at *now_s*."""
        return bool(self._due(now_s))

    def run(self, now_s: float, rotations: dict[str, Rotations]) -> list[OutputFile]:
        """Rotate the files that are due at *now_s*, number them by *rotations*, and return them."""
        with self._output.lock:
            due = {file.number: file for file in self._due(now_s)}
        return self._rotate(due, now_s, rotations, self._is_held_back) if due else []

    def set_aside(self, now_s: float, rotations: dict[str, Rotations]) -> list[OutputFile]:
        """Rotate some of the files that have content, as `run` does, and return them; an empty list
        means that none are left. No message may be written meanwhile.
        """
        with self._output.lock:
            left = (file for file in self._output.active.values() if _has_content(file))
            due = {file.number: file for file in islice(left, ROTATIONS_AT_ONCE_MAX)}
        # The rest of an open line is in another folder's file.
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
        reach("files.rotate-intent")
        rotations.update(changed)
        self._moving = moves
        try:
            self._move(is_held_back)
        except OSError as error:
            raise disk_error(error, "rotate files", self._output.root) from error
        return self.settle()

    def _move(self, is_held_back: HeldBack) -> None:
        for file, row in self._moving.items():
            with self._output.lock:
                if is_held_back(file, row.rotated_ns / 1e9):
                    continue
                safe_open.rename(self._output.root, file.path, row.moving_to)
                self._set_aside(file, row)
            reach("files.rotate-renamed")

    def settle(self) -> list[OutputFile]:
        """Make durable which of the files that were to be rotated are, and return these. It is left
        to do only where a full disk prevented it.
        """
        if not self._moving:
            return []
        moved = [file for file in self._moving if file.stage is Stage.ROTATED]
        try:
            for folder in {safe_open.folders_of(file.path)[-1] for file in moved}:
                safe_open.sync_folder(self._output.root, folder)
        except OSError as error:
            raise disk_error(error, "rotate files", self._output.root) from error
        # A commit in between may have changed them, or may have forgotten a file that was lost.
        known = [file for file in self._moving if file.number in self._output.files]
        rows = {file: _settled(file) for file in known}
        self._state.change({file.number: row for file, row in rows.items()})
        reach("files.rotate-noted")
        for file, row in rows.items():
            file.committed = row
        self._moving = {}
        return moved

    def _set_aside(self, file: OutputFile, row: FileRow) -> None:
        del self._output.active[file.place]
        self._output.full.pop(file, None)
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
        """Return whether *file* ends inside a line, as written or as committed: a crash may take it
        back to that.
        """
        if now_s - file.written_ns / 1e9 > OPEN_LINE_S_MAX:
            return False
        return _goes_on(file.tail) or (file.committed is not None and _goes_on(file.committed.tail))

    def _target(self, file: OutputFile, rotation: Rotations) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(rotation.stamp_s))
        target = f"{file.path}.{stamp}.{rotation.number:06d}"
        # The name must be free with every suffix: the compression may change.
        endings = ("", *(codec.suffix for codec in PACKED_IN.values()))
        while any(safe_open.exists(self._output.root, target + end) for end in endings):
            target += "~"
        return target


def _has_content(file: OutputFile) -> bool:
    # A file that is not committed has no name yet; an empty one has nothing to keep.
    return file.committed is not None and file.committed.length > 0


def _goes_on(tail: Tail | None) -> bool:
    return tail is not None and tail.goes_on


def _settled(file: OutputFile) -> FileRow:
    """Return the row of a file after its rotation, or unchanged where that was held back."""
    assert file.committed is not None
    if file.stage is not Stage.ROTATED:
        return file.committed
    return file.committed._replace(path=file.path, stage=Stage.ROTATED, rotated_ns=file.rotated_ns)


@dataclass(eq=False)
class Upkeep:
    """Rotation, compression and retention of one partition."""

    config: FilesConfig
    output: OutputFiles
    state: State
    rotated: dict[int, OutputFile] = field(default_factory=dict)  # oldest first
    rotations: dict[str, Rotations] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rotation = Rotation(self.config, self.output, self.state)
        self._packing = Packing(self.config.compression, self.output, self.state)
        self._retention = Retention(self.config, self.output, self.state)

    @property
    def removed(self) -> Removed:
        """What retention removed."""
        return self._retention.removed

    @property
    def unreadable_bytes(self) -> int:
        """Bytes of rotated files that could not be read since the files were loaded."""
        return sum(self._packing.unreadable.values())

    def load(self) -> None:
        """Begin anew with the files that were loaded."""
        self._packing.drop()
        self._retention.load()
        self._rotation.load()
        rotated = [
            file
            for file in self.output.files.values()
            if file.stage in (Stage.ROTATED, Stage.PACKED)
        ]
        rotated.sort(key=lambda file: (file.rotated_ns, file.path))
        self.rotated = {file.number: file for file in rotated}
        self.rotations = self.state.rotations()
        self._retention.report(self.rotated)

    def run(self, now_s: float, clock: Callable[[], float]) -> None:
        """Do the work that is due at *now_s* (seconds since 1970), for at most a round's time, as
        *clock* measures it.

        Raises:
            SinkFull: there is no room for it now.
            SinkFailed: the disk failed.
        """
        # Retention first: it makes room for the other two.
        self._retention.run(now_s, self.rotated, self.rotations)
        self.rotate(now_s)
        self._packing.run(self.rotated, clock)
        # Other partitions must know the age of our oldest file before their turn.
        self._retention.report(self.rotated)

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether a file is to be rotated at *now_s*."""
        return self._rotation.is_due(now_s)

    def rotate(self, now_s: float) -> None:
        """Rotate what is due at *now_s*."""
        self._settle()
        for file in self._rotation.run(now_s, self.rotations):
            self.rotated[file.number] = file

    def set_aside(self, now_s: float) -> None:
        """Rotate every file that has content."""
        self._settle()
        while moved := self._rotation.set_aside(now_s, self.rotations):
            self.rotated |= {file.number: file for file in moved}

    def close(self) -> None:
        """Abandon a compression that is under way; it is begun again later."""
        self._packing.drop()
        self._retention.close()

    def _settle(self) -> None:
        for file in self._rotation.settle():
            self.rotated[file.number] = file
