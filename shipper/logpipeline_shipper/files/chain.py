"""The bytes of one source in the order in which they were written, across rotation, compression,
truncation and deletion of its files.

Synchronous and without a clock: whoever drives it says what time it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from logpipeline.checksum import Checksum
from logpipeline.records import Committed
from logpipeline.wire import Previous
from logpipeline_shipper.files.chunk import DAMAGED, DELETED, ROTATED, Chunk, Lost, ReadCounters
from logpipeline_shipper.files.file_identity import (
    NOT_READ,
    Copy,
    Finding,
    New,
    Replaced,
    Resemblance,
    Same,
    Unsure,
    recognise,
    resemblance,
)
from logpipeline_shipper.files.generation import Generation, Place
from logpipeline_shipper.files.generations import (
    OpenFiles,
    PastGenerations,
    UnsureFiles,
    as_before,
    with_hidden,
)
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import ChainFile, Listing, ScanWatermark, SourceId, Watermark
from logpipeline_shipper.files.open_file import NotNow, Unreadable, look_now
from logpipeline_shipper.files.reader import PACKED_BADLY, Reader
from logpipeline_shipper.files.tail import MOVED, Outcome, Patience, Tail, patience_with

__all__ = ["Chain", "Chunk", "Lost"]

SAVED_VERSION = 2

ReadFrom = Literal["beginning", "end", "live"]
T = TypeVar("T")

# A file that cannot be read is tried again after 1, 2, 4 … seconds.
_RETRY_MAX_S = 60.0
# So long the newer files of the source wait for it; it is read late if it becomes readable.
_PATIENCE_S = 30.0
# A damaged packed file may be one that is still being written.
_BROKEN_TRIES = 3
# Files that change under our eyes make one read start over; the rest is for the next one.
_PASSES_MAX = 8
# So long after a file's time its length may be the old one: a write sets them one after the other.
_REWRITTEN_S = 0.5
# A listing that is made while files are renamed may lack one: so many have to.
_LISTINGS_UNTIL_GONE = 2


class Chain(ReadCounters):
    """See the module. *read_from* ``end`` leaves out what the first listing shows, ``live`` the
    rotated files of it; whoever makes a chain gives them for sources that were there before the
    first start, not for new ones. Without *sight*, listings are taken to be always up to date.
    """

    def __init__(
        self,
        id: SourceId,
        *,
        saved: dict[str, Any] | None,
        read_from: ReadFrom,
        limits: ReadLimits,
        watermark: Watermark | None = None,
    ) -> None:
        super().__init__()
        self.id = id
        self._limits = limits
        self._watermark = watermark if watermark is not None else ScanWatermark()
        self._tail = Tail(id.format, limits, self)
        self._open_files = OpenFiles(self._tail, limits)
        self._files: tuple[ChainFile, ...] = ()
        self._generations: list[Generation] = []
        self._past = PastGenerations()
        self._pending: deque[tuple[Generation, Chunk]] = deque()
        self._lost: list[Lost] = []
        self._position: tuple[str, int] | None = None
        self._skips_existing = read_from != "beginning" and saved is None
        self._read_from: ReadFrom = read_from
        self._is_ending = False
        self._unsure = UnsureFiles(_PATIENCE_S)
        self._gone_after_s = _LISTINGS_UNTIL_GONE * limits.grace_s
        # When files are looked at once more that could not be looked at, or that changed without
        # getting longer.
        self._look_again_at_s: float | None = None
        if saved is not None:
            self._restore(saved)

    # -- which files there are

    def update(self, listing: Listing, now_s: float) -> None:
        """Take over what files the source has now."""
        known = set(self.identities())
        self._files = tuple(
            file for file in listing.files if not file.is_aside or file.identity in known
        )
        self._past.see(len(self._files))
        self._recognise(now_s)
        if self._skips_existing:
            self._skips_existing = False
            self._skip_existing()
        self._open_files.hold(self._generations, now_s)
        self._settle(now_s)

    def identities(self) -> list[tuple[int, int, int]]:
        """Return which files are known."""
        return [known.identity for known in self._generations if known.identity is not None]

    def resemblance(self, content: Reader) -> Resemblance:
        """Return what *content*, a file that nobody knows, has of the bytes of the source."""
        known = self._generations, self._past
        return resemblance(content, *known, self._tail.open_file, self._limits.recent)

    def end(self) -> None:
        """Note that nobody writes any more: a last line without its newline is read as well."""
        self._is_ending = True

    def _recognise(self, now_s: float) -> None:
        self._look_again_at_s = None
        before = list(self._generations)
        known = self._generations, self._past
        findings = recognise(self._files, *known, self._tail.open_file, self._limits.recent)
        lying: dict[ChainFile, Generation] = {}
        # What has lost its file first: a copy may take its place.
        for finding in sorted(findings, key=lambda each: not isinstance(each, Replaced)):
            found = self._apply(finding, now_s)
            if found is not None:
                lying[finding.file] = found
        found_ids = [(each, lying[each.file].id if each.file in lying else "") for each in findings]
        self._unsure.note(found_ids, now_s)
        listed = as_before([lying[file] for file in self._files if file in lying], before)
        there = set(map(id, listed))
        for generation in self._generations:
            if id(generation) not in there:
                generation.lose_sight(now_s)
                if not (generation.has_rest or generation.is_open):
                    generation.pass_over()
        self._generations = with_hidden(listed, self._generations)
        self._note_newer(now_s)

    def _apply(self, finding: Finding, now_s: float) -> Generation | None:
        """Do what a finding asks for; return the generation that lies in its file."""
        match finding:
            case Same(file, generation):
                if generation.is_rewritten(file, now_s, _REWRITTEN_S):
                    return self._replace(generation, file, now_s, is_cut=True)
                if generation.touched is None:
                    generation.bind(file, now_s)
                else:
                    self._look_again(now_s + _REWRITTEN_S)
                return generation
            case Replaced(file, generation, is_cut, size):
                return self._replace(generation, file, now_s, is_cut=is_cut, size=size)
            case Copy():
                return self._take_copy(finding, now_s)
            case New(file):
                made = Generation.new(file, now_s)
                self._tail.see(made, now_s)
                self._generations.append(made)
                return made
            case Unsure():
                self._look_again(now_s + self._limits.grace_s / 2)
        return None

    def _take_copy(self, copy: Copy, now_s: float) -> Generation:
        """Have a generation's bytes in a copy of its file; what the copy lacks of them is named."""
        generation = copy.generation
        if generation in self._past:
            self._past.remove(generation)
            self._generations.append(generation)
        generation.close_handle()
        was_missed, extent = generation.is_missed, generation.extent
        generation.find(has_more=copy.has_more)
        is_recalled = generation.is_recalled
        generation.bind(copy.file, now_s)
        if copy.short is not None:
            end = copy.short.end
            generation.shorten(end, copy.short.kept, copy.short.head)
            if not was_missed:
                self._name_lost(generation, max(end, generation.read.offset), extent, ROTATED)
        if is_recalled:
            self._begin_at(generation, generation.read.offset)
        return generation

    def _look_again(self, at_s: float) -> None:
        self._look_again_at_s = min(self._look_again_at_s or at_s, at_s)

    def _replace(
        self, generation: Generation, file: ChainFile, now_s: float, *, is_cut: bool, size: int = 0
    ) -> Generation:
        """Begin a generation in *file*, which held *generation* and has other bytes now, *size* of
        them at least. There may be a copy of the former: it is looked for before more is read.
        """
        if is_cut:
            self.truncations += 1
        else:
            self.restarts += 1
        if not generation.has_rest:
            # Newer files need not wait for what a copy may still bring.
            generation.pass_over()
        generation.lose_file(now_s)
        self._look_again(now_s)
        made = Generation.new(file, now_s)
        made.begin_anew(*(look_now(file) or (size, file.mtime_ns)))
        self._generations.insert(self._generations.index(generation) + 1, made)
        return made

    def _note_newer(self, now_s: float) -> None:
        newest = self._files[-1] if self._files else None
        for generation in self._generations:
            if generation.file is not None and generation.file == newest:
                generation.newer_since_s = None
            elif generation.newer_since_s is None and self._files:
                generation.newer_since_s = now_s

    def _skip_existing(self) -> None:
        for generation in self._generations:
            if generation.newer_since_s is not None:
                generation.give_up()
                continue
            if self._read_from == "live":
                continue
            size = generation.extent
            # A line that is being written is delivered whole.
            start = max(0, size - self._limits.line_bytes)
            before = self._tail.peek(generation, start, size - start)
            if before:
                self._begin_at(generation, start + (before.rfind(b"\n") + 1 or len(before)))

    def _begin_at(self, generation: Generation, offset: int) -> None:
        """Leave out what lies before *offset*, on purpose."""
        start = max(0, offset - self._limits.line_bytes)
        try:
            before = self._tail.peek(generation, start, offset - start) or b""
        except NOT_READ:
            before = b""
        inside = self._tail.is_inside_line(before)
        generation.begin_at(Place(offset - len(before)).behind(before, is_inside_line=inside))
        self._position = (generation.id, offset)

    # -- what they hold

    def hold(self, now_s: float) -> None:
        """Open what is to be read later: it may be deleted before."""
        self._open_files.hold_all(self._generations, now_s)

    def read(self, now_s: float) -> Chunk | None:
        """Return the next bytes after the last chunk that was read, or None while nothing is
        complete.
        """
        for _ in range(_PASSES_MAX):
            if self._look_again_at_s is not None and now_s >= self._look_again_at_s:
                self._recognise(now_s)
            self._settle(now_s)
            found = self._read_oldest(now_s)
            if not isinstance(found, Generation):
                return found
            # Its file was cut, or another one took its place, since it was listed.
            file = found.file
            if file is not None:
                self._cut_off(found, file, now_s)
            else:
                found.close_handle()
            self._open_files.hold(self._generations, now_s)
        return None

    def _cut_off(self, generation: Generation, file: ChainFile, now_s: float) -> None:
        """Note that *file* has other bytes than those of *generation* since it was listed."""
        self._replace(generation, file, now_s, is_cut=True)
        self._note_newer(now_s)

    def _read_oldest(self, now_s: float) -> Chunk | Generation | None:
        """Return the next bytes, or a generation whose file holds other bytes than it had."""
        for generation in list(self._generations):
            if generation.is_read or self._is_passed(generation, now_s):
                continue
            if not self._is_ending and self._unsure.has_to_wait(generation.id, now_s):
                return None
            if generation.retry_at_s > now_s:
                if self._may_pass(generation, now_s):
                    continue
                return None
            try:
                patience = self._patience(generation, now_s)
                found = self._tail.next(generation, now_s, patience, self._previous(generation))
            except MOVED:
                # They say nothing about the file: the next listing, or the next descriptor, does.
                generation.retry_at_s = now_s + self._limits.grace_s / 2
                if generation.is_passed:
                    continue
                return None
            except (Unreadable, OSError) as error:
                self._note_failure(generation, error, now_s)
                if self._may_pass(generation, now_s):
                    continue
                return None
            generation.failures, generation.retry_at_s = 0, 0.0
            if isinstance(found, Chunk):
                self._pending.append((generation, found))
                return found
            if found is Outcome.REPLACED:
                return generation
            if found is Outcome.WAITING:
                return None
            self._settle_done(generation)
        return None

    def _is_passed(self, generation: Generation, now_s: float) -> bool:
        """Return whether there is nothing to look for in a file that newer ones do not wait for."""
        if not generation.is_passed or generation.is_waiting:
            return False
        may_end = generation.has_rest or generation.file is None
        return not (may_end and self._patience(generation, now_s).is_final)

    def _patience(self, generation: Generation, now_s: float) -> Patience:
        if self._is_ending or generation.is_compressed:
            return Patience(may_pass=True, is_final=True)
        return patience_with(generation, now_s, self._limits)

    def _previous(self, generation: Generation) -> Previous | None:
        """Return the generation before *generation*, with its length where its end was seen."""
        if generation.read.offset != 0:
            return None
        before = self._past[-1] if self._past else None
        for other in self._generations:
            if other is generation:
                break
            if other.read.offset > other.begin:
                before = other
        return Previous(before.id, before.length) if before is not None else None

    def _note_failure(self, generation: Generation, error: Exception, now_s: float) -> None:
        reason = error.reason if isinstance(error, Unreadable) else "io-error"
        if not generation.failures:
            self.unreadable[reason] += 1
            generation.failing_since_s = now_s
        generation.failures += 1
        generation.close_handle()
        generation.retry_at_s = now_s + min(2.0 ** (generation.failures - 1), _RETRY_MAX_S)
        if reason.endswith(PACKED_BADLY) and generation.failures >= _BROKEN_TRIES:
            self._lose(generation, generation.extent, DAMAGED)

    def _may_pass(self, generation: Generation, now_s: float) -> bool:
        """Return whether newer files are read before *generation*, which fails for long."""
        if generation.is_read or generation.is_passed:
            return True
        return bool(generation.failures) and now_s - generation.failing_since_s >= _PATIENCE_S

    # -- how far they got

    def acknowledge(self, chunk: Chunk) -> None:
        """Note that *chunk*, the oldest one under way or its first part, has arrived."""
        generation, oldest = self._pending[0]
        assert (chunk.generation, chunk.start) == (generation.id, generation.acked.offset)
        assert chunk.end <= oldest.end
        if chunk.end == oldest.end:
            self._pending.popleft()
        generation.acknowledge(chunk)
        self._position = (generation.id, generation.acked.offset)
        if generation.is_done:
            self._settle_done(generation)

    def rewind(self) -> None:
        """Forget what was read but not acknowledged: it is read again, or missed where its file is
        gone.
        """
        for generation in {id(generation): generation for generation, _ in self._pending}.values():
            generation.rewind()
        self._pending.clear()

    def can_rewind(self) -> bool:
        """Return whether all that was read, and not acknowledged, can still be read again."""
        return all(gen.file is not None or gen.is_open for gen, _ in self._pending)

    def read_range(self, generation: str, start: int, end: int, now_s: float) -> bytes | None:
        """Return the bytes ``[start, end)`` of *generation*, or None if they are gone.

        Raises:
            NotNow: they may be had later.
        """
        size = end - start
        data = self._look_into(generation, now_s, lambda known: self._tail.peek(known, start, size))
        return data if data is not None and len(data) == size else None

    def checksum_at(self, generation: str, offset: int, now_s: float) -> Checksum | None:
        """Return the checksum of *generation* before *offset*, None if its bytes are gone.

        Raises:
            NotNow: they may be had later.
        """
        place = self._look_into(generation, now_s, lambda known: self._tail.place_at(known, offset))
        return place.checksum if place is not None else None

    def _look_into(self, id: str, now_s: float, look: Callable[[Generation], T | None]) -> T | None:
        """Return what *look* finds in the generation *id*, None if its bytes are gone: they are
        when listings have not shown its file for long enough, not when one look misses it.
        """
        known = self._find(id)
        if known is None:
            return None
        if known.file is None and not known.is_open:
            since = known.gone_since_s
            if since is None or self._is_gone(since, now_s):
                return None
            raise NotNow
        if known.retry_at_s > now_s:
            raise NotNow
        try:
            found = look(known)
        except (Unreadable, OSError) as error:
            self._note_failure(known, error, now_s)
            if known.is_missed:
                return None
            raise NotNow from error
        except MOVED as error:
            raise NotNow from error
        known.failures, known.retry_at_s = 0, 0.0
        if found is None and known.file is not None:
            self._cut_off(known, known.file, now_s)
            raise NotNow
        return found

    def position(self) -> tuple[str, int] | None:
        """Return the generation and offset that was acknowledged last."""
        return self._position

    def backlog_bytes(self) -> int:
        """Return how many bytes are known to wait for being acknowledged."""
        return sum(
            generation.extent - generation.acked.offset
            for generation in self._generations
            if not generation.is_done
        )

    def is_finished(self) -> bool:
        """Return whether the source has vanished and nothing of it is left to send."""
        return not (self._files or self._pending or self._generations)

    def may_go_on_alone(self) -> bool:
        """Return whether `read` may return something later though no file changes: when a rotated
        file's grace is over, or a file is tried again.
        """
        return self._look_again_at_s is not None or any(
            generation.retry_at_s
            or (
                generation.changed_since_s is not None
                and (not generation.is_passed or generation.file is None or generation.has_rest)
            )
            for generation in self._generations
            if not generation.is_read
        )

    def saved(self) -> dict[str, Any]:
        """Return, as JSON, what a new chain needs to go on from the acknowledged position."""
        return {
            "version": SAVED_VERSION,
            "position": list(self._position) if self._position else None,
            "open_run": list(self._tail.open_run),
            "generations": [each.saved() for each in self._generations],
            "past": self._past.saved(),
        }

    # -- descriptors, and ends

    def close_idle(self, now_s: float) -> None:
        """Close descriptors that were not used for a while, and deleted files over the limits."""
        self._open_files.close_idle(self._generations, now_s)
        self._settle(now_s)

    def release(self) -> None:
        """Close all descriptors."""
        for generation in self._generations:
            generation.close_handle()

    def _settle(self, now_s: float) -> None:
        """Give up what is gone: files that vanished for good, deleted ones beyond the limits."""
        self._limits.descriptors.limit_deleted(
            now_s, bytes_max=self._limits.deleted_bytes, age_s=self._limits.deleted_age_s
        )
        for generation in list(self._generations):
            if generation.file is not None or generation.is_open or generation.is_read:
                self._settle_done(generation)
                continue
            handle, since = generation.handle, generation.gone_since_s
            if handle is not None and handle.deleted_since is not None:
                # The budget dropped it. It was open to the last, so its length is exact.
                self._lose(generation, handle.size_at_close, DELETED)
            elif since is not None and self._is_gone(since, now_s):
                if not generation.is_verified or generation.has_rest:
                    self.unseen_generations += 1
                    self._lose(generation, generation.extent, ROTATED)
                else:
                    generation.finish(generation.read.offset)
                    self._settle_done(generation)

    def _is_gone(self, since_s: float, now_s: float) -> bool:
        """Return whether what no listing has shown since *since_s* will not be in the next one."""
        unseen_s = self._watermark.at(now_s) - since_s
        return unseen_s >= self._gone_after_s and not self._unsure.is_unsure(now_s)

    def _lose(self, generation: Generation, end: int, cause: str) -> None:
        """Give up what is left of *generation*, which reached up to *end* as far as is known.
        Nothing else may pass over bytes that stood in a file.
        """
        start = generation.read.offset
        generation.miss()
        self._settle_done(generation)
        self._name_lost(generation, start, end, cause)

    def _name_lost(self, generation: Generation, start: int, end: int, cause: str) -> None:
        if start < end:
            self.missing_bytes += end - start
            self._lost.append(Lost(generation.id, generation.begin, start, end, cause))

    @property
    def has_losses(self) -> bool:
        """Whether something was lost that nobody took."""
        return bool(self._lost)

    def take_losses(self) -> list[Lost]:
        """Return what was lost since this was last called: whoever takes it has to name it."""
        taken, self._lost = self._lost, []
        return taken

    def _settle_done(self, generation: Generation) -> None:
        if not generation.is_done or generation not in self._generations:
            return
        generation.close_handle()
        generation.forget_tails()
        if generation.file is None:
            self._generations.remove(generation)
            if generation.read.offset > generation.begin:
                self._past.add(generation)

    def _find(self, id: str) -> Generation | None:
        every = (*self._generations, *self._past)
        return next((each for each in every if id in (each.id, each.former)), None)

    def birth(self, id: str) -> list[Any]:
        """Return, as JSON, what a new chain needs to know the generation *id* again: to be kept
        before its first bytes are sent.
        """
        found = self._find(id)
        assert found is not None
        return found.saved()

    def remember(self, birth: list[Any]) -> None:
        """Take in what `birth` returned in a process that was killed before it saved more."""
        made = Generation.restore(birth)
        if self._find(made.id) is None:
            self._generations.append(made)

    def recall(self, known: Committed) -> bool:
        """Take in what collectors have of a generation; False if it is known here, or cannot be
        known again.
        """
        if known.checksum is None or self._find(known.generation) is not None:
            return False
        self._past.add(Generation.recalled(known, known.checksum))
        return True

    def was_sent(self, id: str, end: int, after: Checksum) -> None:
        """Note that a process before this one may have sent the bytes of *id* up to *end*."""
        found = self._find(id)
        if found is not None:
            found.was_sent(end, after)

    def _restore(self, saved: dict[str, Any]) -> None:
        if saved.get("version") != SAVED_VERSION:
            raise ValueError(f"saved state of version {saved.get('version')}, not {SAVED_VERSION}")
        position = saved["position"]
        self._position = (str(position[0]), int(position[1])) if position else None
        self._tail.open_run = (str(saved["open_run"][0]), list(saved["open_run"][1]))
        self._generations = [Generation.restore(row) for row in saved["generations"]]
        self._past.restore(saved["past"], files=len(self._generations))
