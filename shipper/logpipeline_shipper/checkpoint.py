"""The acknowledged position of each source on disk, at most a second old, and the batches that were
about to be sent since then: a restarted shipper repeats exactly these batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline import checksum, json_text, statefile
from logpipeline.checksum import NOTHING, Checksum
from logpipeline.failpoints import reach
from logpipeline_shipper.account import Account
from logpipeline_shipper.data_folder import DataFolder, DataFolderBusy

log = logging.getLogger(__name__)

_INTENTS_KIND = "intents"
_INTENTS_VERSION = 2
# The intents of a second are far smaller; a larger file was not written by a shipper.
INTENTS_BYTES_MAX = 256 * 1024 * 1024

SAVE_INTERVAL_S = 1.0
# A source is kept for so long after it was seen last: a folder may be mounted late.
ABSENT_KEPT_S = 24 * 3600.0
# And for so long while collectors have not confirmed all of it; streams keep lines for less.
UNSETTLED_KEPT_S = 30 * 24 * 3600.0
# Files that were never seen are counted for so long, so that a check once a week is told of them.
UNSEEN_KEPT_S = 8 * 24 * 3600.0
# Beyond so many sources, those that are gone for longest are forgotten first.
SOURCES_MAX = 100_000
_KIND = "positions"
_STOP_MARK = "stopped"
_VERSION = 3

Position = tuple[str, int]


# The server recognises a message only by its id, which holds its range. Positions are written once
# a second; batches that were sent since then are noted here, appended without fsync: that survives
# a kill of the process; a power cut is recognised by the id of the machine's boot, and a copy of
# the files, restored from a backup, by their inodes.
#
# Births are synced: a file that got another id after a power cut would be collected twice.
class Key(NamedTuple):
    """The name of one source of a shipper: host, and the source's name on the wire."""

    host: str
    source: str


@dataclass(frozen=True, slots=True)
class Intent:
    """Bytes that may have been sent; *attempt* is the suffix of their message id, *after* the
    generation's checksum at *end*.
    """

    generation: str
    start: int
    end: int
    attempt: str = ""
    after: Checksum = NOTHING


@dataclass(frozen=True, slots=True)
class Noted:
    """The content of the intent files, in the order in which it was noted. *is_complete*: nothing
    that was noted is missing.
    """

    intents: list[tuple[Key, Intent]]
    births: list[tuple[Key, list[Any]]]
    is_complete: bool


class IntentLog:
    """The files ``intents.<number>``; each save of the positions begins a new one."""

    def __init__(self, folder: Path, boot: str) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._boot = boot
        self._descriptor: int | None = None
        self._written = self._synced = 0
        self._syncing: asyncio.Task[None] | None = None

    def begin(self, number: int) -> None:
        """Write what follows to the file of *number*.

        Raises:
            OSError: it cannot be written; the former file is used on.
        """
        try:
            descriptor = self._made(number)
        except OSError as error:
            if self._descriptor is None:
                self._distrust(error)
            raise
        self._close()
        self._descriptor = descriptor
        self.problem = None

    def note(self, key: Key, intent: Intent) -> None:
        """Note that the bytes of *intent* are about to be sent."""
        after = checksum.encode(intent.after)
        self._append(
            [*key, intent.generation, intent.start, intent.end, intent.attempt, after],
        )

    async def note_birth(self, key: Key, birth: list[Any]) -> None:
        """Note that a generation is about to be sent for the first time, and return when the note
        survives a power cut. *birth* is the row by which a chain recognises the generation.
        """
        self._append([*key, birth])
        self._written += 1
        wanted = self._written
        # At a first start thousands of files are new: one sync serves all that wait.
        while self._synced < wanted and self._descriptor is not None:
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        written, descriptor = self._written, self._descriptor
        try:
            if descriptor is not None:
                copy = os.dup(descriptor)
                try:
                    await asyncio.to_thread(os.fdatasync, copy)
                finally:
                    os.close(copy)
            self._synced = max(self._synced, written)
        except OSError as error:
            self._distrust(error)
        finally:
            self._syncing = None

    def _append(self, row: list[object]) -> None:
        if self._descriptor is None:
            return
        try:
            _write(self._descriptor, row)
        except OSError as error:
            self._distrust(error)

    def forget_before(self, number: int) -> None:
        """Remove the files before *number*: the saved positions cover them."""
        for found, path in _files(self._folder):
            if found < number:
                with contextlib.suppress(OSError):  # an old file that remains is ignored later
                    path.unlink()

    def close(self) -> None:
        """Close the file; nothing more is noted."""
        self._close()

    def _made(self, number: int) -> int:
        path = _path(self._folder, number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            epoch = _epoch(self._boot, os.fstat(descriptor))
            _write(descriptor, [_INTENTS_KIND, _INTENTS_VERSION, number, epoch])
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        return descriptor

    def _distrust(self, error: OSError) -> None:
        # Without the files, the next start marks what it sends as perhaps sent before; with
        # incomplete files it would not. Files can be removed on a full disk.
        self.problem = f"cannot write intents in {self._folder}: {error.strerror}; free space there"
        log.error("intents cannot be written; shipping goes on", extra={"reason": self.problem})
        self._close()
        for _, path in _files(self._folder):
            with contextlib.suppress(OSError):
                path.unlink()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_noted(folder: Path, first: int, boot: str) -> Noted:
    """Return the content of the files from *first* on. It is not complete if they were written
    before another *boot*, or are copies: nobody knows what was noted since they were made.
    """
    noted = Noted([], [], is_complete=False)
    is_complete = False
    for number, path in _files(folder):
        if number < first:
            continue
        lines = _lines(path)
        head = next(lines, None)
        if head is None or len(head) != 4 or head[:3] != [_INTENTS_KIND, _INTENTS_VERSION, number]:
            return noted
        is_original = bool(boot) and head[3] == _epoch(boot, path.stat())
        is_complete = is_original and (is_complete or number == first)
        for row in lines:
            # A row has no checksum: after a power cut anything may stand there. Without the row its
            # bytes are sent as such that may have been sent before.
            with contextlib.suppress(ValueError, TypeError):
                _add(noted, row)
    return replace(noted, is_complete=is_complete)


def _epoch(boot: str, found: os.stat_result) -> str:
    # A copy of a file, restored from a backup, has another inode.
    return f"{boot} {found.st_ino}"


def _add(noted: Noted, row: list[Any]) -> None:
    match row:
        case [host, source, list(birth)]:
            noted.births.append((Key(str(host), str(source)), birth))
        case [host, source, generation, start, end, attempt, after]:
            intent = Intent(
                str(generation), int(start), int(end), str(attempt), checksum.decode(after)
            )
            noted.intents.append((Key(str(host), str(source)), intent))


def newest_number(folder: Path) -> int:
    """Return the highest number of the files, or 0."""
    return max((number for number, _ in _files(folder)), default=0)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_INTENTS_KIND}.{number}"


def _files(folder: Path) -> list[tuple[int, Path]]:
    found = [path for path in folder.glob(f"{_INTENTS_KIND}.*") if path.suffix[1:].isdigit()]
    return sorted((int(path.suffix[1:]), path) for path in found)


def _lines(path: Path) -> Iterator[list[Any]]:
    with path.open("rb") as file:
        raw = file.read(INTENTS_BYTES_MAX)
    # Bytes after the last newline: the process was killed while it wrote them, before the send.
    for line in raw.split(b"\n")[:-1]:
        try:
            row = json_text.parse(line)
        except ValueError:
            continue
        if isinstance(row, list):
            yield row


def _write(descriptor: int, row: list[object]) -> None:
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    if os.write(descriptor, line) != len(line):
        raise OSError(28, "no space left on device")


# Read once at the start, with the intents noted since; then written whenever something changed. A
# damaged file is set aside, and everything is sent again, marked so that readers drop duplicates.
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """The saved state of one source. *saved* is the state of its chain, *births* the generations
    that it began since then; *absent_since_s* is the wall-clock time since which it has been gone.
    """

    saved: dict[str, Any] | None = None
    intents: tuple[Intent, ...] = ()
    births: tuple[list[Any], ...] = ()
    account: Account = field(default_factory=Account)
    absent_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class LastAck:
    """The last message that was acknowledged on a subject."""

    stream: str
    sequence: int
    identifier: str
    time_s: float


class Unseen(NamedTuple):
    """How many files came and went unseen, at least, and the wall-clock time at which the last one
    was counted. No collector is told of them, so nothing else keeps their number.
    """

    files: int = 0
    last_s: float = 0.0

    def more(self, files: int, now_s: float) -> Unseen:
        """Return the number with *files* more, which are counted now."""
        return Unseen(self.at(now_s) + files, now_s)

    def at(self, now_s: float) -> int:
        """Return the number of files, 0 if the last one was counted long ago."""
        return self.files if now_s - self.last_s < UNSEEN_KEPT_S else 0


NONE_UNSEEN = Unseen()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a shipper keeps across restarts.

    *groups* are the groups of collectors that have reported, by host: an account's `groups`.
    *is_complete*: every byte that was ever sent is covered by a position or an intent; else any
    byte may have been sent before. *was_broken*: the file was there, and was damaged.
    *is_first*: no shipper ever saved anything there.
    """

    sources: dict[Key, SourceRecord] = field(default_factory=dict)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    acks: dict[str, LastAck] = field(default_factory=dict)
    rollbacks: dict[str, int] = field(default_factory=dict)
    unseen: Unseen = NONE_UNSEEN
    is_complete: bool = False
    was_broken: bool = False
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The parts of a `State` to save, the sources as rows of `encode_row`."""

    rows: list[str]
    groups: dict[str, dict[str, int]]
    acks: dict[str, LastAck]
    rollbacks: dict[str, int]
    unseen: Unseen


def load(folder: Path, boot: str, now_s: float = 0.0) -> State:
    """Return the state that was saved in *folder*; after damage an empty one that is marked as
    broken. Unconfirmed ranges count as acknowledged at *now_s*.
    """
    path = folder / _KIND
    was_stopped = _take_stop_mark(folder)
    try:
        data = statefile.read_state(path, _KIND, _VERSION)
        if data is None:
            # Intents without positions: these were lost, or set aside as damaged.
            return State(is_first=not newest_number(folder))
        state = _decoded(data, now_s)
        first_intents = int(data["intents"])
    except (statefile.StateBroken, ValueError, TypeError, KeyError, AttributeError) as error:
        aside = statefile.set_aside(path)
        log.error(
            "the checkpoint is damaged; all files are sent again, and readers drop duplicates",
            extra={"reason": f"{type(error).__name__}: {error}", "aside": str(aside)},
        )
        return State(was_broken=True)
    noted = read_noted(folder, first_intents, boot)
    for key, intent in noted.intents:
        record = state.sources.get(key, SourceRecord())
        state.sources[key] = replace(record, intents=(*record.intents, intent))
    for key, birth in noted.births:
        record = state.sources.get(key, SourceRecord())
        state.sources[key] = replace(record, births=(*record.births, birth))
    return replace(state, is_complete=was_stopped or noted.is_complete)


def peek(folder: Path) -> dict[Key, SourceRecord]:
    """Return the sources that the shipper of *folder*, which may be running, saved last.

    Raises:
        StateBroken: the file is damaged.
        FileNotFoundError: no shipper ever saved there.
    """
    path = folder / _KIND
    data = statefile.read_state(path, _KIND, _VERSION)
    if data is None:
        raise FileNotFoundError(f"no shipper ever ran in {folder}")
    try:
        return _decoded(data, 0.0).sources
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise statefile.StateBroken(f"{path}: {type(error).__name__}: {error}") from error


class CheckpointWriter:
    """Writes the snapshot that *take* returns whenever `changed` was called since the last time."""

    def __init__(
        self, folder: DataFolder, intents: IntentLog, take: Callable[[], Snapshot]
    ) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._intents = intents
        self._take = take
        self._changed = asyncio.Event()
        self._number = newest_number(folder.path)
        self._is_begun = False

    def changed(self) -> None:
        """Note that there is something to save."""
        self._changed.set()

    async def run(self) -> None:
        """Save for ever, at most once in `SAVE_INTERVAL_S`, and only when something changed."""
        while True:
            await self._changed.wait()
            await self.save()
            await asyncio.sleep(SAVE_INTERVAL_S)

    async def save(self, *, is_last: bool = False) -> bool:
        """Save now; return whether that succeeded. If not, `problem` is the reason, and shipping
        goes on.

        *is_last*: nothing more is sent.
        """
        self._changed.clear()
        try:
            if self._folder.restore():
                self._is_begun = False
            # From here on new intents go into a new file, and the snapshot holds the batches in
            # flight: whenever the process is killed, each batch is in one of them. After a failure
            # the file that was begun is used on, so that a full disk does not get more files.
            if not self._is_begun or self._intents.problem:
                self._intents.begin(self._number + 1)
                self._number += 1
                self._is_begun = True
            data = _encoded(self._take()) | {"intents": self._number}
            path = self._folder.path / _KIND
            reach("shipper.before-save")
            await _to_its_end(asyncio.to_thread(statefile.write_state, path, _KIND, _VERSION, data))
            if is_last:
                _put_stop_mark(self._folder.path)
        except (DataFolderBusy, OSError) as error:
            self._failed(error)
            return False
        reach("shipper.after-save")
        self._is_begun = False
        self._intents.forget_before(self._number)
        if self.problem is not None:
            log.info("positions are saved again", extra={"folder": str(self._folder.path)})
        self.problem = None
        return True

    def _failed(self, error: DataFolderBusy | OSError) -> None:
        text = str(error)
        if isinstance(error, OSError):
            why = os.strerror(error.errno or 0)
            text = f"cannot save positions in {self._folder.path}: {why}; "
            if error.errno == errno.EFBIG:
                most = statefile.STATE_BYTES_MAX
                text += f"they take more than {most:,} bytes: match fewer files"
            else:
                text += "free space there, or give another data folder"
        if self.problem is None:
            log.error("positions cannot be saved; shipping goes on", extra={"reason": text})
        self.problem = text
        self._changed.set()


async def _to_its_end(work: Awaitable[None]) -> None:
    """Wait for *work* also when cancelled. A thread cannot be stopped: it would write the temporary
    file that the last save writes, too.
    """
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    finally:
        if not working.done():
            await asyncio.wait([working])


def bounded(records: dict[Key, SourceRecord], now_s: float) -> dict[Key, SourceRecord]:
    """Return *records* without those that are absent for too long, and within the limit."""
    kept = {key: record for key, record in records.items() if _is_kept(record, now_s)}
    if len(kept) <= SOURCES_MAX:
        return kept
    # Present ones sort last; the sources that are gone for longest go first.
    ages = sorted(
        kept, key=lambda key: (kept[key].absent_since_s is None, kept[key].absent_since_s or 0)
    )
    return {key: kept[key] for key in ages[len(kept) - SOURCES_MAX :]}


def _is_kept(record: SourceRecord, now_s: float) -> bool:
    if record.absent_since_s is None:
        return True
    is_waiting = record.account.groups and not record.account.is_settled
    return now_s - record.absent_since_s < (UNSETTLED_KEPT_S if is_waiting else ABSENT_KEPT_S)


# The mark is a separate file, since that can be removed on a full disk too: a shipper that cannot
# save must not leave the mark of a former one. It holds its own inode, which is another one in a
# folder that was restored from a backup: much may have been sent since that was made.
def _put_stop_mark(folder: Path) -> None:
    with (folder / _STOP_MARK).open("w") as mark:
        mark.write(str(os.fstat(mark.fileno()).st_ino))
        mark.flush()
        os.fsync(mark.fileno())
    statefile.sync_folder(folder)


def _take_stop_mark(folder: Path) -> bool:
    mark = folder / _STOP_MARK
    try:
        with mark.open("rb") as file:
            is_original = file.read(32) == str(os.fstat(file.fileno()).st_ino).encode()
    except FileNotFoundError:
        return False
    mark.unlink()
    statefile.sync_folder(folder)
    return is_original


def encode_row(key: Key, record: SourceRecord) -> str:
    """Return the row of one source, as it is saved."""
    return json.dumps(_row(key, record), separators=(",", ":"))


def _encoded(state: Snapshot) -> dict[str, Any]:
    return {
        "sources": state.rows,
        "groups": state.groups,
        "acks": {
            subject: [ack.stream, ack.sequence, ack.identifier, ack.time_s]
            for subject, ack in state.acks.items()
        },
        "rollbacks": state.rollbacks,
        "unseen": list(state.unseen),
    }


def _row(key: Key, record: SourceRecord) -> dict[str, Any]:
    return {
        "host": key.host,
        "source": key.source,
        "saved": record.saved,
        "intents": [
            [i.generation, i.start, i.end, i.attempt, checksum.encode(i.after)]
            for i in record.intents
        ],
        "births": record.births,
        "account": record.account.saved(),
        "absent": record.absent_since_s,
    }


def _decoded(data: dict[str, Any], now_s: float) -> State:
    rows = [json_text.parse(row) for row in data["sources"]]
    files, last_s = data.get("unseen", NONE_UNSEEN)  # former versions saved none
    return State(
        sources={Key(row["host"], row["source"]): _record(row, now_s) for row in rows},
        groups={
            str(host): {str(name): int(begun) for name, begun in groups.items()}
            for host, groups in data["groups"].items()
        },
        acks={subject: LastAck(*fields) for subject, fields in data["acks"].items()},
        rollbacks={str(name): int(count) for name, count in data["rollbacks"].items()},
        unseen=Unseen(int(files), float(last_s)),
    )


def _record(row: dict[str, Any], now_s: float) -> SourceRecord:
    return SourceRecord(
        saved=row["saved"],
        intents=tuple(
            Intent(str(g), int(s), int(e), str(a), checksum.decode(after))
            for g, s, e, a, after in row["intents"]
        ),
        births=tuple(row["births"]),
        account=Account.restore(row["account"], now_s),
        absent_since_s=row["absent"],
    )
