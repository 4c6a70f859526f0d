"""The bytes of one source in the order in which they were written, across rotation, compression,
truncation and deletion of its files.

Synchronous and without a clock: whoever drives it says what time it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, Literal

from logpipeline_shipper.files.chunks import Chunk
from logpipeline_shipper.files.counts import Counts
from logpipeline_shipper.files.descriptors import Closed
from logpipeline_shipper.files.generations import Generation
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.opening import Moved, TooManyOpen, Unreadable
from logpipeline_shipper.files.sources import ChainFile, Listing, SourceId
from logpipeline_shipper.files.tail import Changed, Tail

__all__ = ["Chain", "Chunk"]

SAVED_VERSION = 1

ReadFrom = Literal["beginning", "end", "live"]

# A file that cannot be read is tried again after 1, 2, 4 … seconds.
_RETRY_MAX_S = 60.0
# So long the newer files of the source wait for it; it is read late if it becomes readable.
_PATIENCE_S = 30.0
# A damaged .gz may be one that is still being written.
_BROKEN_TRIES = 3
# Files that change under our eyes make one read start over; the rest is for the next one.
_PASSES_MAX = 8


class Chain(Counts):
    """See the module. *read_from* ``end`` leaves out what the first listing shows, ``live`` the
    rotated files of it; whoever makes a chain gives them for sources that were there before the
    first start, not for new ones.
    """

    def __init__(
        self,
        id: SourceId,
        *,
        saved: dict[str, Any] | None,
        read_from: ReadFrom,
        limits: ReadLimits,
    ) -> None:
        super().__init__()
        self.id = id
        self._limits = limits
        self._tail = Tail(id.format, limits, self)
        self._lineage = self._tail.lineage
        self._files: tuple[ChainFile, ...] = ()
        self._pending: deque[tuple[Generation, Chunk]] = deque()
        self._position: tuple[str, int] | None = None
        self._skips_existing = read_from != "beginning" and saved is None
        self._read_from: ReadFrom = read_from
        self._begun: tuple[str, int] | None = None
        if saved is not None:
            self._restore(saved)

    def update(self, listing: Listing, now_s: float) -> None:
        """Take over what files the source has now."""
        self._files = listing.files
        self._lineage.update(listing.files, now_s)
        if self._skips_existing:
            self._skips_existing = False
            self._skip_existing(now_s)
        self._hold(now_s)
        self._settle(now_s)

    def end(self) -> None:
        """Note that nobody writes any more: a last line without its newline is read as well."""
        self._tail.is_ending = True

    def hold(self, now_s: float) -> None:
        """Open what is to be read later: it may be deleted before."""
        for generation in self._lineage.generations:
            if generation.is_done or generation.is_open or not self._limits.descriptors.has_room():
                continue
            try:
                self._tail.handle_of(generation, now_s)
            except (Changed, Closed, Moved, TooManyOpen, Unreadable, OSError):
                return  # `read` meets it again, and says so

    def read(self, now_s: float) -> Chunk | None:
        """Return the next bytes after the last chunk that was read, or None while nothing is
        complete.
        """
        for _ in range(_PASSES_MAX):
            self._settle(now_s)
            try:
                chunk = self._read_oldest(now_s)
            except Changed:
                self._hold(now_s)
                continue
            if chunk is not None and (chunk.generation, chunk.start) == self._begun:
                return replace(chunk, begins=True)
            return chunk
        return None

    def acknowledge(self, chunk: Chunk) -> None:
        """Note that *chunk*, the oldest one under way or its first part, has arrived."""
        generation, oldest = self._pending[0]
        assert (chunk.generation, chunk.start) == (generation.name, generation.acked)
        assert chunk.end <= oldest.end
        if chunk.end == oldest.end:
            self._pending.popleft()
        generation.acknowledge(chunk.data, inside_line=chunk.ends_inside_line)
        self._position = (generation.name, generation.acked)
        if generation.is_done:
            self._settle_done(generation)

    def rewind(self) -> None:
        """Forget what was read but not acknowledged: it will be read again."""
        for generation in {id(generation): generation for generation, _ in self._pending}.values():
            if generation.file is None and not generation.is_open:
                self.missing_bytes += generation.offset - generation.acked
                generation.acked, generation.acked_tail = generation.offset, generation.tail
                self._settle_done(generation)
            else:
                generation.rewind()
        self._pending.clear()

    def read_range(self, generation: str, start: int, end: int) -> bytes | None:
        """Return the bytes ``[start, end)`` of *generation*, or None if they are gone."""
        found = self._find(generation)
        data = self._tail.peek(found, start, end - start) if found is not None else None
        return data if data is not None and len(data) == end - start else None

    def rewind_to(self, generation: str, offset: int) -> bool:
        """Read again from *offset* of *generation* on, and all generations after it.

        False says that the bytes from there on are gone.
        """
        found = self._find(generation)
        if found is None or offset > found.acked:
            return False
        start = max(0, offset - self._limits.line_bytes)
        before = self._tail.peek(found, start, offset - start)
        if before is None or len(before) != offset - start:
            return False
        self.rewind()
        later = self._lineage.generations[self._lineage.generations.index(found) + 1 :]
        found.go_back(offset, before, inside_line=self._tail.is_inside_line(before))
        for other in later:
            other.go_back(0, b"", inside_line=False)
        self._position = (generation, offset)
        return True

    def position(self) -> tuple[str, int] | None:
        """Return the generation and offset that was acknowledged last."""
        return self._position

    def backlog_bytes(self) -> int:
        """Return how many bytes are known to wait for being acknowledged."""
        return sum(
            generation.extent - generation.acked
            for generation in self._lineage.generations
            if not generation.is_done
        )

    def is_finished(self) -> bool:
        """Return whether the source has vanished and nothing of it is left to send."""
        return not (self._files or self._pending or self._lineage.generations)

    def wake_at_s(self) -> float | None:
        """Return when `read` may return something though no file changes: when a rotated file's
        grace is over, or a file is tried again.
        """
        times = []
        for generation in self._lineage.generations:
            if generation.is_read:
                continue
            if generation.retry_at_s:
                times.append(generation.retry_at_s)
            if generation.changed_since_s is not None:
                times.append(generation.changed_since_s + self._limits.grace_s)
        return min(times, default=None)

    def saved(self) -> dict[str, Any]:
        """Return, as JSON, what a new chain needs to go on from the acknowledged position."""
        return {
            "version": SAVED_VERSION,
            "position": list(self._position) if self._position else None,
            "open_run": list(self._tail.open_run),
            "begun": list(self._begun) if self._begun else None,
            **self._lineage.saved(),
        }

    def close_idle(self, now_s: float) -> None:
        """Close descriptors that were not used for a while, and deleted files over the limits."""
        for generation in self._lineage.generations:
            handle = generation.handle
            if handle is None or generation.file is None:
                continue
            is_behind = generation.extent > generation.acked
            if not is_behind and now_s - handle.used_s >= self._limits.idle_close_s:
                generation.close_handle()
        self._settle(now_s)

    def release(self) -> None:
        """Close all descriptors."""
        for generation in self._lineage.generations:
            generation.close_handle()

    def _read_oldest(self, now_s: float) -> Chunk | None:
        for generation in [gen for gen in self._lineage.generations if not gen.is_read]:
            if generation.retry_at_s > now_s:
                if self._may_pass(generation, now_s):
                    continue
                return None
            try:
                chunk = self._tail.next_chunk(generation, now_s)
            except (Moved, TooManyOpen, Closed):
                # Not a word about the file: the next listing, or the next descriptor, tells.
                generation.retry_at_s = now_s + self._limits.grace_s / 2
                return None
            except (Unreadable, OSError) as error:
                self._note_failure(generation, error, now_s)
                if self._may_pass(generation, now_s):
                    continue
                return None
            generation.failures, generation.retry_at_s = 0, 0.0
            if chunk is not None:
                self._pending.append((generation, chunk))
                return chunk
            if not generation.is_read:
                return None
            self._settle_done(generation)
        return None

    def _note_failure(self, generation: Generation, error: Exception, now_s: float) -> None:
        reason = error.reason if isinstance(error, Unreadable) else "io-error"
        if not generation.failures:
            self.unreadable[reason] += 1
            generation.failing_since_s = now_s
        generation.failures += 1
        generation.close_handle()
        generation.retry_at_s = now_s + min(2.0 ** (generation.failures - 1), _RETRY_MAX_S)
        if reason.startswith("gzip") and generation.failures >= _BROKEN_TRIES:
            self._lose(generation, None)

    def _may_pass(self, generation: Generation, now_s: float) -> bool:
        """Return whether newer files are read before *generation*, which fails for long."""
        if generation.is_read:
            return True
        return bool(generation.failures) and now_s - generation.failing_since_s >= _PATIENCE_S

    def _settle(self, now_s: float) -> None:
        """Give up what is gone: files that vanished for good, deleted ones beyond the limits."""
        self._limits.descriptors.limit_deleted(
            now_s, bytes_max=self._limits.deleted_bytes, age_s=self._limits.deleted_age_s
        )
        for generation in list(self._lineage.generations):
            if generation.file is not None or generation.is_open or generation.is_read:
                continue
            handle, since = generation.handle, generation.gone_since_s
            if handle is not None and handle.deleted_since is not None:
                # The budget dropped it. It was open to the last, so its length is exact.
                self.missing_bytes += max(0, handle.size_at_close - generation.offset)
                self._lose(generation, handle.size_at_close)
            elif since is not None and now_s - since >= self._limits.grace_s:
                unread = max(0, generation.size - generation.offset)
                self.missing_bytes += unread
                was_away = generation.restored is not None
                if was_away or (unread and not generation.replaced):
                    self.unseen_generations += 1
                self._lose(generation, None)

    def _lose(self, generation: Generation, length: int | None) -> None:
        generation.lost = True
        generation.finish(length)
        self._settle_done(generation)

    def _settle_done(self, generation: Generation) -> None:
        if not generation.is_done or generation not in self._lineage.generations:
            return
        generation.close_handle()
        if generation.file is None:
            self._lineage.bury(generation)
        elif generation.name:
            generation.forget_tails()

    def _hold(self, now_s: float) -> None:
        for _ in range(_PASSES_MAX):
            try:
                for generation in list(self._lineage.generations):
                    self._keep_open(generation, now_s)
                return
            except Changed:
                continue

    def _keep_open(self, generation: Generation, now_s: float) -> None:
        """Hold on to a file with unacknowledged bytes: it may be deleted before they are read."""
        unread = generation.extent - generation.acked
        budget = self._limits.descriptors
        if generation.is_done or generation.file is None:
            if generation.handle is not None and not generation.is_done:
                budget.keep_deleted(generation.handle, unread, now_s)
            return
        try:
            if generation.is_open and generation.handle is not None:
                budget.keep_listed(generation.handle)
                self._tail.check_unchanged(generation, generation.handle, now_s)
            elif unread and budget.has_room():
                self._tail.handle_of(generation, now_s)
            elif not generation.is_compressed and generation.listed_size != generation.size:
                self._tail.look_at(generation, now_s)
        except (Closed, Moved, TooManyOpen, Unreadable, OSError):
            return  # `read` meets it again, and says so

    def _skip_existing(self, now_s: float) -> None:
        for generation in self._lineage.generations:
            if generation.newer_since_s is not None:
                generation.finish(None)
                continue
            if self._read_from == "live":
                continue
            size = generation.extent
            start = max(0, size - self._limits.line_bytes)
            before = self._tail.peek(generation, start, size - start) if generation.name else None
            if before:
                # A line that is being written is delivered whole.
                end = start + (before.rfind(b"\n") + 1 or len(before))
                before = before[: end - start]
                inside = self._tail.is_inside_line(before)
                generation.go_back(end, before, inside_line=inside)
                self._position = self._begun = (generation.name, end)

    def _find(self, name: str) -> Generation | None:
        return next((gen for gen in self._lineage.generations if gen.name == name), None)

    def _restore(self, saved: dict[str, Any]) -> None:
        if saved.get("version") != SAVED_VERSION:
            raise ValueError(f"saved state of version {saved.get('version')}, not {SAVED_VERSION}")
        position = saved["position"]
        self._position = (str(position[0]), int(position[1])) if position else None
        begun = saved.get("begun")
        self._begun = (str(begun[0]), int(begun[1])) if begun else None
        self._tail.open_run = (str(saved["open_run"][0]), list(saved["open_run"][1]))
        self._lineage.restore(saved)
