"""The open files of all chains, under one limit: the least recently used one is closed first.

A deleted file is the exception: its descriptor is all that is left of it, so it stays open until
it is read, up to a number of bytes and an age that all chains share.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from logpipeline_shipper.files.opening import TooManyOpen
from logpipeline_shipper.files.reading import Reader

# Half of the usual limit of 1,024 descriptors a process.
OPEN_FILES_MAX = 512


class Closed(Exception):
    """The descriptor was given away meanwhile: open the file again."""


class Handle:
    """A reader whose descriptor the budget may close between two reads."""

    __slots__ = (
        *("_budget", "deleted_since", "is_open", "key", "reader"),
        *("size_at_close", "used_s", "uses"),
    )

    def __init__(self, budget: DescriptorBudget, reader: Reader, key: tuple[int, int]) -> None:
        self._budget = budget
        self.uses = 0
        self.reader = reader
        self.key = key
        self.is_open = True
        self.used_s = 0.0
        self.deleted_since: float | None = None
        self.size_at_close = 0

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset*.

        Raises:
            Closed: the budget closed the descriptor.
            OSError: reading failed.
        """
        # Chains may be read in threads: a descriptor's number must not be reused while it is read.
        self._budget.borrow(self)
        try:
            return self.reader.read(offset, size)
        finally:
            self.uses -= 1

    def size(self) -> int:
        """Return the length of the content.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._told(lambda reader: reader.size())

    def written_ns(self) -> int:
        """Return when the file was written to last, in nanoseconds since 1970.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._told(lambda reader: reader.written_ns())

    def data_start(self) -> int:
        """Return where the first byte of the file is that stands in no hole.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._told(lambda reader: reader.data_start())

    def _told(self, ask: Callable[[Reader], int]) -> int:
        self._budget.borrow(self)
        try:
            return ask(self.reader)
        finally:
            self.uses -= 1

    @property
    def compressed(self) -> bool:
        """Return whether the file is packed."""
        return self.reader.compressed

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is the content's, modulo 4 GiB where it is compressed."""
        return self.reader.tells_size

    @property
    def is_busy(self) -> bool:
        """Return whether a read is under way."""
        return self.uses > 0

    def close(self) -> None:
        """Give the descriptor back."""
        self._budget.close(self)


class DescriptorBudget:
    """At most *open_files_max* open log files, those of deleted files included."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.open_files_max = max(open_files_max, 2)
        self._lock = threading.RLock()
        self._handles: OrderedDict[Handle, None] = OrderedDict()
        self._deleted: OrderedDict[Handle, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles) + len(self._deleted)

    def has_room(self) -> bool:
        """Return whether one more file can be opened without closing another."""
        return len(self) < self.open_files_max

    def open(self, opener: Callable[[], Reader], key: tuple[int, int], now_s: float) -> Handle:
        """Return a handle of what *opener* opens; the least recently used one makes room.

        Raises:
            TooManyOpen: the system has no descriptor left, and we have none to give.
        """
        with self._lock:
            while not self.has_room() and self._close_one():
                pass
            try:
                reader = opener()
            except TooManyOpen:
                if not self._close_one():
                    raise
                reader = opener()
            handle = Handle(self, reader, key)
            handle.used_s = now_s
            self._handles[handle] = None
            return handle

    def borrow(self, handle: Handle) -> None:
        """Note that *handle* is being used, until its *uses* are counted down again.

        Raises:
            Closed: it is closed.
        """
        with self._lock:
            if not handle.is_open:
                raise Closed
            handle.uses += 1
            if handle in self._handles:
                self._handles.move_to_end(handle)

    def close(self, handle: Handle) -> None:
        """Close *handle*, whatever it stands for; its last size is kept in it."""
        with self._lock:
            if handle.is_open:
                handle.is_open = False
                self._handles.pop(handle, None)
                self._deleted.pop(handle, None)
                handle.size_at_close = handle.reader.size()
                handle.reader.close()

    def keep_deleted(self, handle: Handle, unread_bytes: int, now_s: float) -> None:
        """Note that *handle* is all that is left of a file, of which *unread_bytes* are to come."""
        with self._lock:
            if handle.is_open:
                if handle.deleted_since is None:
                    handle.deleted_since = now_s
                self._handles.pop(handle, None)
                self._deleted[handle] = unread_bytes

    def keep_listed(self, handle: Handle) -> None:
        """Note that the bytes of *handle* have a name again, so that it may be closed."""
        with self._lock:
            if handle.is_open and self._deleted.pop(handle, None) is not None:
                handle.deleted_since = None
                self._handles[handle] = None

    def limit_deleted(self, now_s: float, *, bytes_max: int, age_s: float) -> None:
        """Close deleted files, oldest first, until they are within the limits; their chains count
        what is lost.
        """
        with self._lock:
            for handle in list(self._deleted):
                since = now_s if handle.deleted_since is None else handle.deleted_since
                too_old = now_s - since > age_s
                too_large = sum(self._deleted.values()) > bytes_max
                too_many = len(self._deleted) > self.open_files_max // 2
                if (too_old or too_large or too_many) and not handle.is_busy:
                    self.close(handle)

    def _close_one(self) -> bool:
        handle = next((handle for handle in self._handles if not handle.is_busy), None)
        if handle is None:
            return False
        self.close(handle)
        return True
