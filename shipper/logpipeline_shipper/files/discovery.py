"""Finds the sources: by inotify, to be fast, and by a rescan, to be certain.

A rescan looks at every folder that is not watched. Watched folders are looked at as well, within a
small share of one core: a few folders all in every rescan, 10,000 folders in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from logpipeline_shipper.files.directory_scan import Folder, roots_of
from logpipeline_shipper.files.listing import HostSources, Listing, SourceId

# A watch costs the kernel 1 KiB. Further folders are looked at in every rescan.
WATCHES_MAX = 32_768
# All processes of a user share the system's limit; half of it is left to the others.
_SYSTEM_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
_READ_BYTES = 256 * 1024
_EVENT = struct.Struct("iIII")

# The share of one core that looking at watched, idle folders may cost.
_IDLE_SHARE = 0.005
# Other tasks run in the same event loop: after so long they get a turn.
_SLICE_S = 0.01
# Events are collected for so long: a busy file causes one hint instead of thousands.
_LINGER_S = 0.005
# A folder that changes all the time is looked at with pauses: the duration of the look, times this.
_PAUSE_FACTOR = 10
_PAUSE_MIN_S = 0.02
# New events come while others are read; after so many reads the rest waits.
_READS_MAX = 16
# Further folders below one root are not scanned: these are 10,000 pods with three containers each.
# Each root has its own, so that whoever may make folders in one tree does not stop all others.
_FOLDERS_MAX = 50_000
# Why a root is in trouble that has more.
TOO_MANY_FOLDERS = "too-many-folders"
# Reports are kept so that each is made once.
_REPORTS_MAX = 100_000

OnListing = Callable[[Listing], None]
OnWrite = Callable[[SourceId], None]
OnLooked = Callable[[float], None]
OnTrouble = Callable[[Path, str], None]


class Events(Protocol):
    """Takes the events that a `Watcher` reads."""

    def on_changed(self, folder: Folder) -> None:
        """A name appeared, disappeared or changed in *folder*."""

    def on_written(self, folder: Folder, name: str) -> None:
        """The file *name* in *folder* was written to."""

    def on_overflow(self) -> None:
        """Events were lost: anything may have changed."""


def _system_limit() -> int:
    try:
        return int(_SYSTEM_LIMIT.read_text())
    except (OSError, ValueError):
        return WATCHES_MAX


class Watcher:
    """Watches up to `WATCHES_MAX` folders.

    Raises:
        OSError: the system gives no inotify instance.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "no inotify on this system")
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]  # has no types

        self._inotify = INotify(nonblocking=True)
        self._watches_max = min(WATCHES_MAX, _system_limit() // 2)
        self._folders: dict[int, Folder] = {}
        self._watches: dict[Folder, int] = {}
        self._mask = (
            flags.MODIFY
            | flags.CREATE
            | flags.DELETE
            | flags.MOVED_FROM
            | flags.MOVED_TO
            | flags.ATTRIB
            | flags.DELETE_SELF
            | flags.MOVE_SELF
            | flags.ONLYDIR
        )
        self._modify, self._overflow = int(flags.MODIFY), int(flags.Q_OVERFLOW)
        self._ignored, self._moved = int(flags.IGNORED), int(flags.MOVE_SELF)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with an event."""
        return int(self._inotify.fileno())

    def watch(self, folder: Folder) -> bool:
        """Watch *folder*; return False if that is not possible: it has to be polled."""
        if folder in self._watches:
            return True
        if len(self._watches) >= self._watches_max:
            return False
        try:
            watch = self._inotify.add_watch(folder.path, self._mask)
        except OSError:
            return False
        if (other := self._folders.get(watch)) is not None:
            # Two paths of one folder (two hosts may have the same): one is watched, one polled.
            return other is folder
        self._folders[watch] = folder
        self._watches[folder] = watch
        return True

    def forget(self, folder: Folder) -> None:
        """Stop watching *folder*."""
        watch = self._watches.pop(folder, None)
        if watch is None:
            return
        self._folders.pop(watch, None)
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            return  # the kernel removed it together with the folder

    def is_watched(self, folder: Folder) -> bool:
        """Return whether *folder* is watched."""
        return folder in self._watches

    def read(self, events: Events) -> bool:
        """Pass the events since the last call to *events*, each one once; return whether there were
        any.
        """
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        seen: dict[tuple[int, bytes], int] = {}
        position = 0
        while position < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, position)
            start = position + _EVENT.size
            position = start + length
            key = (watch, data[start:position])
            seen[key] = seen.get(key, 0) | mask
        for (watch, padded), mask in seen.items():
            self._pass(events, watch, padded, mask)
        return True

    def _pass(self, events: Events, watch: int, padded: bytes, mask: int) -> None:
        if mask & self._overflow:
            events.on_overflow()
            return
        folder = self._folders.get(watch)
        if folder is None:
            return
        if mask & self._ignored:
            del self._folders[watch]
            self._watches.pop(folder, None)
        if mask & self._moved:
            self.forget(folder)  # another folder is at its path now, or none
        if mask & self._modify:
            events.on_written(folder, os.fsdecode(padded.rstrip(b"\0")))
        if mask & ~self._modify:
            events.on_changed(folder)

    def close(self) -> None:
        """Close the inotify instance."""
        self._inotify.close()


class Discovery:
    """See the module. *skipped* is called once for each path that is left out, with the reason;
    *on_trouble*, while it runs, for each folder that cannot be read any more, and for each root
    with too many folders to read all, with the reason, and with an empty one when it can be read
    again or is gone.

    Without *is_watching*, or if the system has no inotify, every rescan looks at every folder.
    """

    def __init__(
        self,
        hosts: Sequence[HostSources],
        *,
        rescan_s: float = 2.0,
        skipped: Callable[[Path, str], None],
        on_trouble: OnTrouble = lambda folder, reason: None,
        is_watching: bool = True,
    ) -> None:
        self._is_watching = is_watching
        self._hosts = tuple(hosts)
        self._rescan_s = rescan_s
        self._skipped = skipped
        self._on_trouble = on_trouble
        self._reported: dict[Path, str] = {}

    def scan(self) -> list[Listing]:
        """Return the listings of all sources that exist now."""
        found: list[Listing] = []
        queue = deque(self._roots())
        while queue:
            folder = queue.popleft()
            folder.look()
            found += folder.listings.values()
            queue += folder.subfolders.values()
        return found

    async def run(
        self, on_listing: OnListing, on_write: OnWrite, on_looked: OnLooked = lambda until_s: None
    ) -> None:
        """Call *on_listing* for each source that is new, changed or gone, and *on_write* for writes
        to files, until cancelled. Call *on_looked* again and again with the time (of the loop) up
        to which all changes of the folders were reported; first when each folder was looked at.

        For a source whose files changed, *on_write* is called once more after the next rescan, when
        a rotated file is known to be complete.
        """
        try:
            watcher = Watcher() if self._is_watching else None
        except OSError:
            watcher = None
        scanner = _Scanner(
            self._roots(), watcher, self._rescan_s, on_listing, on_write, self._note_trouble
        )
        try:
            await scanner.run(on_looked)
        finally:
            scanner.close()

    def _note_trouble(self, path: Path, reason: str) -> None:
        if reason == TOO_MANY_FOLDERS:
            self._report(path, reason)  # what a look meets is reported by the folder itself
        self._on_trouble(path, reason)

    def _roots(self) -> list[Folder]:
        return [root for host in self._hosts for root in roots_of(host, self._report)]

    def _report(self, path: Path, reason: str) -> None:
        if self._reported.get(path) != reason and len(self._reported) < _REPORTS_MAX:
            self._reported[path] = reason
            self._skipped(path, reason)


class _Census:
    """How many folders of each root are scanned, `_FOLDERS_MAX` at most."""

    def __init__(self) -> None:
        self._root_of: dict[Folder, Folder] = {}  # of the folders below
        self._counts: Counter[Folder] = Counter()
        # The folders that have others below which are not scanned, by their root.
        self._crowded: dict[Folder, set[Folder]] = {}

    def root_of(self, folder: Folder) -> Folder:
        """Return the root of *folder*, which may be one itself."""
        return self._root_of.get(folder, folder)

    def take_in(self, folder: Folder) -> list[Folder]:
        """Return the folders in *folder* that are to be scanned from now on."""
        root = self.root_of(folder)
        new = [child for child in folder.subfolders.values() if child not in self._root_of]
        taken = new[: max(0, _FOLDERS_MAX - self._counts[root])]
        self._counts[root] += len(taken)
        self._root_of |= dict.fromkeys(taken, root)
        if len(taken) < len(new):
            self._crowded.setdefault(root, set()).add(folder)
        else:
            self._is_not_crowded(folder, root)
        return taken

    def forget(self, folder: Folder) -> set[Folder]:
        """Note that *folder* is gone; return the folders below which there is room now for what is
        not scanned yet.
        """
        root = self.root_of(folder)
        if self._root_of.pop(folder, None) is not None:
            self._counts[root] -= 1
        self._is_not_crowded(folder, root)
        return self._crowded.get(root, set())

    def _is_not_crowded(self, folder: Folder, root: Folder) -> None:
        crowded = self._crowded.get(root, set())
        crowded.discard(folder)
        if not crowded:
            self._crowded.pop(root, None)

    def trouble(self, folder: Folder) -> str:
        """Return why the files of *folder*, or of folders below a root, are not known."""
        return folder.trouble or (TOO_MANY_FOLDERS if folder in self._crowded else "")


class _Scanner:
    """One run of a `Discovery`: which folders are due, and what was reported of each."""

    def __init__(
        self,
        roots: list[Folder],
        watcher: Watcher | None,
        rescan_s: float,
        on_listing: OnListing,
        on_write: OnWrite,
        on_trouble: OnTrouble,
    ) -> None:
        self._watcher = watcher
        self._rescan_s = rescan_s
        self._on_listing = on_listing
        self._on_write = on_write
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._roots = roots
        self._listed: dict[Folder, dict[SourceId, Listing]] = {}
        self._polled: dict[Folder, None] = {}
        self._round: deque[Folder] = deque()
        # The time since which each of them may have changed without a look.
        self._changed: dict[Folder, float] = dict.fromkeys(roots, self._loop.time())
        # All events that happened before have been read.
        self._unread_since_s = self._loop.time()
        self._not_before_s: dict[Folder, float] = {}
        self._hint_later: dict[SourceId, float] = {}
        self._credit_s = 0.0
        self._census = _Census()
        self._troubles: dict[Folder, str] = {}

    async def run(self, on_looked: OnLooked) -> None:
        self._listen()
        is_first, next_round_s = True, self._loop.time()
        while True:
            began_s = self._loop.time()
            is_round = began_s >= next_round_s
            is_all_read = is_round and self._read_all_events()
            await self._look_at_changed()
            if is_round:
                if not is_first:
                    await self._rescan()
                is_first, next_round_s = False, self._loop.time() + self._rescan_s
            if is_all_read:
                on_looked(min([began_s, *self._changed.values()]))
            self._hint_due()
            waiting = (self._not_before_s.get(folder, 0.0) for folder in self._changed)
            await self._sleep_until(min([next_round_s, *self._hint_later.values(), *waiting]))

    def close(self) -> None:
        if self._watcher is not None:
            self._loop.remove_reader(self._watcher.fileno())
            self._watcher.close()
            self._watcher = None

    # -- events

    def _listen(self) -> None:
        if self._watcher is not None:
            self._loop.add_reader(self._watcher.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        if self._watcher is not None:
            self._loop.remove_reader(self._watcher.fileno())
            self._loop.call_later(_LINGER_S, self._read_events)

    def _read_events(self) -> None:
        if self._watcher is not None:
            self._read_all_events()
            self._listen()

    def _read_all_events(self) -> bool:
        """Read the events that came since the last time; return whether these are all."""
        if self._watcher is None:
            return True
        began_s = self._loop.time()
        is_all = any(not self._watcher.read(self) for _ in range(_READS_MAX))
        if is_all:
            self._unread_since_s = began_s
        return is_all

    def on_changed(self, folder: Folder) -> None:
        # An event does not say when it happened.
        self._changed.setdefault(folder, self._unread_since_s)
        self._wake.set()

    def on_written(self, folder: Folder, name: str) -> None:
        source = folder.sources.get(name)
        if source is not None:
            self._on_write(source)
        else:
            self.on_changed(folder)

    def on_overflow(self) -> None:
        self._changed = dict.fromkeys(self._listed, self._unread_since_s) | self._changed
        for listings in self._listed.values():
            for source in listings:
                self._on_write(source)
        self._wake.set()

    # -- looking

    async def _look_at_changed(self) -> None:
        started_s = self._loop.time()
        for folder in list(self._changed):
            # Those that a look at another one showed to be gone are not looked at any more.
            is_due = self._not_before_s.get(folder, 0.0) <= started_s
            if is_due and folder in self._changed:
                await self._look(folder)

    async def _rescan(self) -> None:
        for root in [root for root in self._roots if root not in self._listed]:
            await self._look(root)
        for folder in list(self._polled):
            if folder in self._polled:
                await self._look(folder)
        self._credit_s = min(self._credit_s, 0.0) + _IDLE_SHARE * self._rescan_s
        for _ in range(len(self._round)):
            if self._credit_s <= 0:
                return
            folder = self._round.popleft()
            if folder in self._listed and folder not in self._polled:
                self._round.append(folder)
                self._credit_s -= await self._look(folder)

    async def _look(self, folder: Folder) -> float:
        """Look at *folder* and at what is new below it; return the seconds that it took."""
        queue, spent_s, slice_s = deque([folder]), 0.0, 0.0
        while queue:
            current = queue.popleft()
            cost_s = self._look_at_one(current, queue)
            spent_s, slice_s = spent_s + cost_s, slice_s + cost_s
            if slice_s >= _SLICE_S:
                slice_s = 0.0
                await asyncio.sleep(0)
        return spent_s

    def _look_at_one(self, folder: Folder, queue: deque[Folder]) -> float:
        started_s = time.perf_counter()
        self._changed.pop(folder, None)
        before = list(folder.subfolders.values())
        # Watch first, then look: a change in between causes an event.
        is_watched = self._watcher is not None and self._watcher.watch(folder)
        is_there = folder.look()
        for child in before:
            if folder.subfolders.get(child.path.name) is not child:
                self._forget(child)
        self._report(folder)
        if not is_there:
            self._forget(folder)
        elif is_watched:
            self._polled.pop(folder, None)
        else:
            self._polled[folder] = None
        if is_there:
            queue += self._census.take_in(folder)
            for each in {folder, self._census.root_of(folder)}:
                self._note_trouble(each)
        cost_s = time.perf_counter() - started_s
        pause_s = max(_PAUSE_MIN_S, _PAUSE_FACTOR * cost_s)
        self._not_before_s[folder] = self._loop.time() + pause_s
        return cost_s

    def _note_trouble(self, folder: Folder) -> None:
        """Report what became of the trouble of *folder* since the last time."""
        trouble = self._census.trouble(folder)
        if trouble != self._troubles.get(folder, ""):
            self._on_trouble(folder.path, trouble)
        if trouble:
            self._troubles[folder] = trouble
        else:
            self._troubles.pop(folder, None)

    def _report(self, folder: Folder) -> None:
        if folder not in self._listed:
            self._round.append(folder)
        former = self._listed.get(folder, {})
        self._listed[folder] = folder.listings
        for source, listing in folder.listings.items():
            before = former.get(source)
            if before != listing:
                self._on_listing(listing)
                if before is None or _identities(before) != _identities(listing):
                    self._hint_later[source] = self._loop.time() + self._rescan_s
        for source in former.keys() - folder.listings.keys():
            self._on_listing(Listing(source, ()))
            self._hint_later[source] = self._loop.time() + self._rescan_s

    def _forget(self, folder: Folder) -> None:
        """Report that the sources of *folder*, and of all folders below, are gone."""
        for gone in folder.walk():
            if self._watcher is not None:
                self._watcher.forget(gone)
            for source in self._listed.pop(gone, {}):
                self._on_listing(Listing(source, ()))
                self._hint_later[source] = self._loop.time() + self._rescan_s
            for register in (self._polled, self._changed, self._not_before_s):
                register.pop(gone, None)
            for crowded in self._census.forget(gone):
                self.on_changed(crowded)
            if self._troubles.pop(gone, ""):
                self._on_trouble(gone.path, "")

    def _hint_due(self) -> None:
        now_s = self._loop.time()
        for source in [source for source, due_s in self._hint_later.items() if due_s <= now_s]:
            del self._hint_later[source]
            self._on_write(source)

    async def _sleep_until(self, due_s: float) -> None:
        self._wake.clear()
        if any(
            self._not_before_s.get(folder, 0.0) <= self._loop.time() for folder in self._changed
        ):
            return
        delay_s = max(0.0, due_s - self._loop.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wake.wait()


def _identities(listing: Listing) -> list[tuple[int, int, int]]:
    return [file.identity for file in listing.files]
