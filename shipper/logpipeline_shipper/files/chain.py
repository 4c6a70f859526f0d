"""The bytes of one source in the order in which they were written, across rotation, compression,
truncation and deletion of its files.

Synchronous and without a clock: the caller gives the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from logpipeline.checksum import Checksum
from logpipeline.records import Committed
from logpipeline.redaction import NOTHING_REDACTED, Redactor
from logpipeline_shipper.files.chunk import DAMAGED, DELETED, ROTATED, Chunk, Lost, ReadCounters
from logpipeline_shipper.files.file_identity import (
    Copy,
    FileMatcher,
    Finding,
    New,
    Replaced,
    Resemblance,
    Same,
    Unsure,
)
from logpipeline_shipper.files.generation import PATIENCE_S, Generation
from logpipeline_shipper.files.generations import (
    FileAbsence,
    OpenFiles,
    PastGenerations,
    UnsureFiles,
    as_before,
    failing_of,
    in_order,
    note_newest,
    previous_of,
    takes_long,
    unbound,
    with_hidden,
)
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import ChainFile, Listing, ScanWatermark, SourceId, Watermark
from logpipeline_shipper.files.open_file import (
    NOT_READ,
    Inconclusive,
    NotNow,
    Stamp,
    Unreadable,
    has_length,
    look_now,
)
from logpipeline_shipper.files.place import Head, Place
from logpipeline_shipper.files.reader import PACKED_BADLY, Reader
from logpipeline_shipper.files.sent_again import SentAgain
from logpipeline_shipper.files.tail import Outcome, Patience, Tail, patience_with

__all__ = ["Chain", "Chunk", "Lost"]

SAVED_VERSION = 2

ReadFrom = Literal["beginning", "end", "live"]

# A damaged packed file may still be being written: it is given up after so many tries.
_BROKEN_TRIES = 3
# So many files of the source may turn out to be replaced during one read; the next read goes on.
_REPLACED_MAX = 8
# A write sets the time and the length of a file one after the other: within so long, also where it
# waits in between for the file system's journal.
_REWRITTEN_S = 2.0


class Chain(ReadCounters):
    """See the module. *read_from* ``end`` leaves out the bytes that the first listing shows,
    ``live`` its rotated files alone; both are meant for sources that existed before the first
    start, not for new ones. Without *watermark*, each listing counts as up to date.
    """

    def __init__(
        self,
        id: SourceId,
        *,
        saved: dict[str, Any] | None,
        read_from: ReadFrom,
        limits: ReadLimits,
        watermark: Watermark | None = None,
        redactor: Redactor = NOTHING_REDACTED,
    ) -> None:
        super().__init__()
        self.id = id
        self._limits = limits
        self._tail = Tail(id.format, limits, self, redactor)
        self._again = SentAgain(self._tail, id.format, limits, redactor)
        self._absence = FileAbsence(watermark or ScanWatermark(), limits.grace_s)
        self._matcher = FileMatcher(self._tail, limits.recent, self._may_turn_up)
        self._open_files = OpenFiles(self._tail, limits)
        self._files: tuple[ChainFile, ...] = ()
        self._generations: list[Generation] = []
        self._past = PastGenerations()
        self._pending: deque[tuple[Generation, Chunk]] = deque()
        self._position: tuple[str, int] | None = None
        self._skips_existing = read_from != "beginning" and saved is None
        self._read_from: ReadFrom = read_from
        self._is_ending = False
        self._unsure = UnsureFiles(PATIENCE_S)
        # The time to match the files again that could not be decided on, or that got a new time
        # without new bytes.
        self._match_again_at_s: float | None = None
        if saved is not None:
            self._restore(saved)

    # -- which files there are

    def update(self, listing: Listing, now_s: float) -> None:
        """Take *listing*: the files that the source has now."""
        self._files = self._unsure.without_strangers(listing.files, self._generations, now_s)
        self._past.see(len(self._files))
        self._match_files(now_s)
        self._unsure.note_listing()
        if self._skips_existing:
            self._skips_existing = False
            self._skip_existing()
        self._open_files.keep(self._generations, now_s)
        self._settle(now_s)

    def identities(self) -> list[tuple[int, int, int]]:
        """Return the identities of the known files."""
        return [known.identity for known in self._generations if known.identity is not None]

    def takes_long(self, files: Sequence[ChainFile] = ()) -> bool:
        """Return whether to take *files*, or to read on, takes long."""
        undecided = self._files if self._match_again_at_s is not None else ()
        return takes_long((*files, *undecided), self._generations, self._past)

    def heads(self) -> set[Head]:
        """Return what its files, also those that are gone, begin with."""
        return {each.head for each in (*self._generations, *self._past)}

    def resemblance(self, content: Reader, now_s: float) -> Resemblance:
        """Return how *content*, a file that no source knows, resembles this source.

        It is called from another thread than the one that may be reading the chain now.
        """
        return self._matcher.resemblance(content, self._generations, self._past, now_s)

    def end(self) -> None:
        """Note that nothing more is written: a last line without its newline is read as well."""
        self._is_ending = True

    def _match_files(self, now_s: float) -> None:
        """Decide which generation each file is, and bring the generations up to date."""
        self._match_again_at_s = None
        before = list(self._generations)
        matched = self._matcher.match(self._files, self._generations, self._past, now_s)
        findings = self._unsure.decided(matched, now_s, is_ending=self._is_ending)
        lying: dict[ChainFile, Generation] = {}
        # Replaced files come first: their generations have no file then, and may get a copy.
        for finding in sorted(findings, key=lambda each: not isinstance(each, Replaced)):
            if (found := self._apply(finding, now_s)) is not None:
                lying[finding.file] = found
        found_ids = [(each, lying[each.file].id if each.file in lying else "") for each in findings]
        self._unsure.note(found_ids, now_s)
        listed = as_before(in_order(self._files, lying, findings, before), before)
        there = set(map(id, lying.values()))
        for generation in self._generations:
            if id(generation) not in there:
                generation.lose_sight(now_s)
                may_have_more = generation.has_rest or generation.is_open
                if not (may_have_more or self._may_turn_up(generation, now_s)):
                    generation.pass_over()
        self._generations = with_hidden(listed, self._generations)
        note_newest(self._generations, self._files, now_s)

    def _apply(self, finding: Finding, now_s: float) -> Generation | None:
        """Carry out a finding; return the generation that is in its file."""
        match finding:
            case Same(file, generation):
                rewritten_ns = generation.note_touch(file, now_s, _REWRITTEN_S)
                if rewritten_ns is not None and has_length(file):
                    stamp = (file.size, rewritten_ns)
                    return self._replace(generation, file, now_s, stamp, is_cut=True)
                if generation.touched is None:
                    generation.bind(file, now_s)
                else:
                    self._match_again(now_s + _REWRITTEN_S)
                return generation
            case Replaced(file, generation, is_cut, size, recalled):
                if recalled is not None:
                    self._lose_file(generation, now_s, is_cut=is_cut)
                    return self._take_copy(Copy(file, recalled, has_more=True), now_s)
                stamp = look_now(file) or (size, file.mtime_ns)
                return self._replace(generation, file, now_s, stamp, is_cut=is_cut)
            case Copy():
                return self._take_copy(finding, now_s)
            case New(file):
                made = Generation.new(file, now_s)
                self._tail.observe(made, now_s)
                self._generations.append(made)
                return made
            case Unsure():
                self._match_again(now_s + self._limits.grace_s / 2)
        return None

    def _take_copy(self, copy: Copy, now_s: float) -> Generation:
        """Let a generation have a copy as its file; bytes that the copy lacks are lost."""
        generation = copy.generation
        if generation in self._past:
            self._past.remove(generation)
            self._generations.append(generation)
        generation.close_handle()
        was_missed, extent = generation.is_missed, generation.extent
        generation.note_copy(has_more=copy.has_more)
        is_recalled = generation.is_recalled
        generation.bind(copy.file, now_s)
        if copy.short is not None:
            end = copy.short.end
            generation.shorten(end, copy.short.kept, copy.short.head)
            if not was_missed:
                start = max(end, generation.read.offset)
                self.name_lost(Lost(generation.id, generation.begin, start, extent, ROTATED))
        if is_recalled:
            self._begin_at(generation, generation.read.offset)
        return generation

    def _match_again(self, at_s: float) -> None:
        self._match_again_at_s = min(self._match_again_at_s or at_s, at_s)

    def _replace(
        self, generation: Generation, file: ChainFile, now_s: float, stamp: Stamp, *, is_cut: bool
    ) -> Generation:
        """Begin a generation in *file*, which held *generation* and has had other bytes since its
        length and time of modification were *stamp*.
        """
        self._lose_file(generation, now_s, is_cut=is_cut)
        made = Generation.new(file, now_s)
        made.begin_anew(*stamp)
        self._unsure.note_emptied(made, now_s)
        self._generations.insert(self._generations.index(generation) + 1, made)
        return made

    def _lose_file(self, generation: Generation, now_s: float, *, is_cut: bool) -> None:
        """Note that the file of *generation* has other bytes. A copy of the former ones may exist:
        it is searched before more is read.
        """
        if is_cut:
            self.truncations += 1
        else:
            self.restarts += 1
        if not generation.has_rest:
            # Newer files need not wait for a copy, which may have further bytes.
            generation.pass_over()
        generation.lose_file(now_s)
        self._match_again(now_s)

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
        """Leave out the bytes before *offset*, on purpose."""
        start = max(0, offset - self._limits.line_bytes)
        try:
            before = self._tail.peek(generation, start, offset - start) or b""
        except NOT_READ:
            before = b""
        inside = self._tail.is_inside_line(before)
        generation.begin_at(Place(offset - len(before)).behind(before, is_inside_line=inside))
        self._position = (generation.id, offset)

    # -- reading

    def hold(self, now_s: float) -> None:
        """Open the files that are read later: they may be deleted before."""
        self._open_files.open_unfinished(self._generations, now_s)

    def read(self, now_s: float) -> Chunk | None:
        """Return the next bytes behind the last chunk, or None while no line is complete."""
        for _ in range(_REPLACED_MAX):
            if self._match_again_at_s is not None and now_s >= self._match_again_at_s:
                self._match_files(now_s)
            self._settle(now_s)
            found = self._read_oldest(now_s)
            if not isinstance(found, Outcome):
                return found
            # A copy of the replaced bytes comes before the new bytes of the file: match first.
        return None

    def _read_oldest(self, now_s: float) -> Chunk | Outcome | None:
        """Return the next bytes of the oldest generation that has any; an outcome if one's file
        holds other bytes now, so that it got another generation, or if one grew that was passed.
        """
        passed: list[Generation] = []
        for generation in list(self._generations):
            if generation.is_read:
                continue
            if self._is_passed(generation, now_s):
                passed.append(generation)
                continue
            if not self._is_ending and self._unsure.has_to_wait(generation, now_s):
                return None
            if generation.retry_at_s > now_s:
                if generation.may_be_passed(now_s):
                    continue
                return None
            try:
                patience = self._patience(generation, now_s)
                previous = previous_of(generation, self._generations, self._past)
                found = self._tail.next(generation, now_s, patience, previous, passed)
            except Inconclusive:
                # The next listing, or the next free descriptor, decides.
                generation.try_again(now_s + self._limits.grace_s / 2)
                if generation.is_passed:
                    continue
                return None
            except (Unreadable, OSError) as error:
                self._note_failure(generation, error, now_s)
                if generation.may_be_passed(now_s):
                    continue
                return None
            generation.succeed()
            match found:
                case Chunk():
                    self._pending.append((generation, found))
                    return found
                case Outcome.REPLACED:
                    self._note_replaced(generation, now_s)
                    return Outcome.REPLACED
                case Outcome.GROWN:
                    return found
                case Outcome.WAITING:
                    return None
                case Outcome.PASSED:
                    generation.pass_over()
                case Outcome.ENDED:
                    generation.finish(generation.read.offset)
                    self._settle_done([generation])
        return Outcome.GROWN if unbound(passed) else None

    def _note_replaced(self, generation: Generation, now_s: float) -> None:
        """Note that the file of *generation* holds other bytes since it was listed."""
        file = generation.file
        if file is not None:
            stamp = look_now(file) or (0, file.mtime_ns)
            self._replace(generation, file, now_s, stamp, is_cut=True)
            note_newest(self._generations, self._files, now_s)
        else:
            generation.close_handle()
        self._open_files.keep(self._generations, now_s)

    def _is_passed(self, generation: Generation, now_s: float) -> bool:
        """Return whether newer files do not wait for *generation*, which has nothing new."""
        if not generation.is_passed or generation.is_waiting:
            return False
        if generation.file is None and generation.is_open:
            return False  # only a read shows whether it has more
        may_end = generation.has_rest or generation.file is None
        return not (may_end and self._patience(generation, now_s).is_final)

    def _patience(self, generation: Generation, now_s: float) -> Patience:
        if self._is_ending or generation.is_compressed:
            return Patience(may_pass=True, is_final=True)
        return patience_with(generation, now_s, self._limits)

    def _note_failure(self, generation: Generation, error: Exception, now_s: float) -> None:
        reason = error.reason if isinstance(error, Unreadable) else "io-error"
        if not generation.failures:
            self.unreadable[reason] += 1
        generation.fail(reason, now_s)
        if reason.endswith(PACKED_BADLY) and generation.failures >= _BROKEN_TRIES:
            self.unseen_generations += 1
            self._lose(generation, generation.extent, DAMAGED)
            self._settle_done([generation])

    def failing(self) -> list[tuple[Path, str]]:
        """Return the files that cannot be read now, each with the reason."""
        return failing_of(self._generations)

    # -- positions

    def acknowledge(self, chunk: Chunk) -> None:
        """Note that *chunk*, the oldest pending one or its first part, was acknowledged."""
        generation, oldest = self._pending[0]
        assert (chunk.generation, chunk.start) == (generation.id, generation.acked.offset)
        assert chunk.end <= oldest.end
        if chunk.end == oldest.end:
            self._pending.popleft()
        generation.acknowledge(chunk)
        self._position = (generation.id, generation.acked.offset)
        self._settle_done([generation])

    def rewind(self) -> None:
        """Forget the chunks that were read but not acknowledged: they are read again, or are lost
        if their file is gone.
        """
        for generation in {id(generation): generation for generation, _ in self._pending}.values():
            generation.rewind()
        self._pending.clear()

    def can_rewind(self) -> bool:
        """Return whether all that was read, and not acknowledged, can still be read again."""
        return all(gen.file is not None or gen.is_open for gen, _ in self._pending)

    def read_again(
        self, id: str, begin: int, offset: int, now_s: float
    ) -> Chunk | Literal[Outcome.WAITING, Outcome.ENDED]:
        """Return the lines of the generation *id* with the byte at *offset*, as they were sent;
        `Outcome.WAITING` if they are not reached yet: ask again; `Outcome.ENDED` if they are gone:
        listings have not shown the file for long enough, or it ends before. Another process, which
        sent a former id, began at *begin*.

        Raises:
            NotNow: they may become readable later.
        """
        known = self._find(id)
        if known is None:
            return Outcome.ENDED
        if known.file is None and not known.is_open:
            since = known.gone_since_s
            if since is None or self._is_gone(since, now_s):
                return Outcome.ENDED
            raise NotNow
        if known.retry_at_s > now_s:
            raise NotNow
        begin = known.begin if id == known.id else begin
        try:
            found = self._again.read(known, id, begin, offset, now_s)
        except (Unreadable, OSError) as error:
            self._note_failure(known, error, now_s)
            if known.is_missed:
                return Outcome.ENDED
            raise NotNow from error
        except Inconclusive as error:
            raise NotNow from error
        known.succeed()
        if found is not Outcome.REPLACED:
            return found
        if known.file is None:
            return Outcome.ENDED
        self._note_replaced(known, now_s)
        raise NotNow

    def end_again(self) -> None:
        """Close what `read_again` keeps open."""
        self._again.close()

    def position(self) -> tuple[str, int] | None:
        """Return the generation and the offset up to which it was acknowledged last."""
        return self._position

    def backlog_bytes(self) -> int:
        """Return how many known bytes are not acknowledged."""
        behind = [each for each in self._generations if not each.is_done]
        return sum(each.extent - each.acked.offset for each in behind)

    def is_finished(self) -> bool:
        """Return whether the source has no files any more, and nothing is left to send."""
        return not (self._files or self._pending or self._generations)

    def may_go_on_alone(self) -> bool:
        """Return whether `read` may return something later though no file changes: when the grace
        of a rotated file is over, or a file is tried again.
        """
        is_due = self._match_again_at_s is not None
        return is_due or any(each.may_go_on_alone for each in self._generations)

    def saved(self) -> dict[str, Any]:
        """Return, as JSON, the state with which a new chain continues where this one is."""
        return {
            "version": SAVED_VERSION,
            "position": list(self._position) if self._position else None,
            "open_run": list(self._tail.open_run),
            "generations": [each.saved() for each in self._generations],
            "past": self._past.saved(),
        }

    # -- descriptors, ends and losses

    def close_idle(self, now_s: float) -> None:
        """Close descriptors that were not used for a while, and deleted files beyond the limits."""
        self._open_files.close_idle(self._generations, now_s)
        self._settle(now_s)

    def release(self) -> None:
        """Close all descriptors."""
        self.end_again()
        for generation in self._generations:
            generation.close_handle()

    def _settle(self, now_s: float) -> None:
        """Give up generations whose files are gone, or deleted and beyond the limits."""
        self._limits.descriptors.limit_deleted(
            now_s, bytes_max=self._limits.deleted_bytes, age_s=self._limits.deleted_age_s
        )
        for generation in self._generations:
            if generation.file is not None or generation.is_open or generation.is_read:
                continue
            handle, since = generation.handle, generation.gone_since_s
            if handle is not None and handle.deleted_since is not None:
                # The budget closed it. It was open until then, so its length is exact.
                # If all of it was read, a program was still writing to it.
                self.unseen_generations += generation.read.offset >= handle.size_at_close
                self._lose(generation, handle.size_at_close, DELETED)
            elif since is not None and self._is_gone(since, now_s):
                if not generation.is_verified or generation.has_rest:
                    self.unseen_generations += 1
                    self._lose(generation, generation.extent, ROTATED)
                else:
                    generation.finish(generation.read.offset)
        self._settle_done(self._generations)

    def _may_turn_up(self, generation: Generation, now_s: float) -> bool:
        # At the end nothing is renamed any more.
        return not self._is_ending and self._absence.may_turn_up(generation, now_s)

    def _is_gone(self, since_s: float, now_s: float) -> bool:
        """Return whether a file that no listing has shown since *since_s* is gone for good."""
        return self._absence.is_known(since_s, now_s) and not self._unsure.is_unsure(now_s)

    def _lose(self, generation: Generation, end: int, cause: str) -> None:
        """Give up the rest of *generation*, which had bytes up to *end*, as far as is known. Only
        here may bytes that were in a file be left unread, but for those left out on purpose.
        """
        start = generation.read.offset
        generation.miss()
        self.name_lost(Lost(generation.id, generation.begin, start, end, cause))

    def _settle_done(self, generations: Iterable[Generation]) -> None:
        """Close those of *generations* that are done; those without a file belong to the past."""
        done = [each for each in generations if each.is_done]
        for each in done:
            each.put_away()
        if past := {id(each) for each in done if each.file is None}:
            for each in self._generations:
                if id(each) in past and each.read.offset > each.begin:
                    self._past.add(each)
            self._generations = [each for each in self._generations if id(each) not in past]

    def _find(self, id: str) -> Generation | None:
        every = (*self._generations, *self._past)
        return next((each for each in every if id in (each.id, each.former)), None)

    def birth(self, id: str) -> list[Any]:
        """Return, as JSON, the state by which a new chain recognises the generation *id*. It must
        be on disk before the first bytes of *id* are sent.
        """
        found = self._find(id)
        assert found is not None
        return found.saved()

    def remember(self, birth: list[Any]) -> None:
        """Restore what `birth` returned in a former process, which saved no state since then."""
        made = Generation.restore(birth)
        if self._find(made.id) is None:
            self._generations.append(made)

    def recall(self, known: Committed, before_ns: int) -> bool:
        """Take what collectors have of a generation, which was sent before *before_ns* by the
        system's clock; return False if it is known here already, or cannot be recognised.
        """
        if known.checksum is None or self._find(known.generation) is not None:
            return False
        self._past.add(Generation.recalled(known, known.checksum, before_ns))
        return True

    def was_sent(self, id: str, end: int, after: Checksum) -> None:
        """Note that a former process may have sent the bytes of *id* up to *end*."""
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
