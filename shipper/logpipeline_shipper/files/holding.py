"""Which files of one source are held open: one that is unread may be deleted before it is read."""

from __future__ import annotations

from collections.abc import Iterable

from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.recognition import NOT_READ
from logpipeline_shipper.files.tail import Tail


class Holding:
    """Opens generations through *tail*, and closes them, within *limits*."""

    def __init__(self, tail: Tail, limits: ReadLimits) -> None:
        self._tail = tail
        self._limits = limits

    def hold(self, generations: Iterable[Generation], now_s: float) -> None:
        """Hold on to files with unacknowledged bytes."""
        for generation in list(generations):
            self._keep_open(generation, now_s)

    def hold_all(self, generations: Iterable[Generation], now_s: float) -> None:
        """Open each file that is not read to its end, though no new bytes of it are known."""
        for generation in generations:
            if generation.is_done or generation.is_open or not self._limits.descriptors.has_room():
                continue
            try:
                self._tail.handle_of(generation, now_s)
            except NOT_READ:
                return  # reading meets it again, and says so

    def close_idle(self, generations: Iterable[Generation], now_s: float) -> None:
        """Close the files that are read so far, and that nobody has used for a while."""
        for generation in generations:
            handle = generation.handle
            if handle is None or generation.file is None:
                continue
            is_behind = generation.extent > generation.acked.offset
            if not is_behind and now_s - handle.used_s >= self._limits.idle_close_s:
                generation.close_handle()

    def _keep_open(self, generation: Generation, now_s: float) -> None:
        unread = generation.extent - generation.acked.offset
        budget = self._limits.descriptors
        if generation.is_done or generation.file is None:
            if generation.handle is not None and not generation.is_done:
                budget.keep_deleted(generation.handle, unread, now_s)
            return
        try:
            if generation.is_open and generation.handle is not None:
                budget.keep_listed(generation.handle)
            elif unread and budget.has_room():
                self._tail.handle_of(generation, now_s)
        except NOT_READ:
            return  # reading meets it again, and says so
