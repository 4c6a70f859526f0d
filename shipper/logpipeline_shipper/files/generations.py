"""The generations of one source together: their order, which are kept open, which have to wait, and
which are past.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from logpipeline.wire import Previous
from logpipeline_shipper.files.file_identity import Awaited, Finding, New, Unsure
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import ChainFile, Watermark
from logpipeline_shipper.files.open_file import NOT_READ
from logpipeline_shipper.files.tail import Tail

# As many as the source had files, and so many more: logrotate compresses one rotation later. Its
# usual 4 files and kubelet's 5 are far fewer.
GONE_MAX = 64


# So many bytes are compared, or unpacked, in some milliseconds.
LONG_BYTES = 1024 * 1024


def takes_long(
    files: Sequence[ChainFile], generations: Sequence[Generation], past: Iterable[Generation]
) -> bool:
    """Return whether it takes long to recognise *files*, or to read on in those of *generations*: a
    large file may be a copy of one of these, or of the *past* ones, so that all of it has to be
    compared; and what is packed is unpacked up to the offset before it can be read on.
    """
    if large := [file for file in files if file.size >= LONG_BYTES]:
        known = {each.identity for each in generations}
        # All of a live file is compared only with what collectors have.
        may_be_live = any(each.is_recalled for each in (*generations, *past))
        if any(file.identity not in known for file in large if may_be_live or not file.is_live):
            return True
    return any(
        each.is_compressed and each.read.offset >= LONG_BYTES and not (each.is_open or each.is_read)
        for each in generations
    )


def in_order(
    files: Sequence[ChainFile],
    lying: Mapping[ChainFile, Generation],
    findings: Iterable[Finding],
    known: Sequence[Generation],
) -> list[Generation]:
    """Return the generations that are *lying* in *files*, in the order of these, with those of the
    *known* ones that probably lie in a file, as *findings* say: what is found now has its place
    before or behind them.
    """
    hidden = set(map(id, known)) - set(map(id, lying.values()))
    probable = {
        each.file: each.generation
        for each in findings
        if isinstance(each, Unsure) and id(each.generation) in hidden
    }
    found = (lying.get(file) or probable.get(file) for file in files)
    return list({id(each): each for each in found if each is not None}.values())


def as_before(listed: Sequence[Generation], before: Sequence[Generation]) -> list[Generation]:
    """Return *listed*, which are in the order of their names, with those that were known *before*
    in the order that they had then: a rotator may have given one a name that does not show its age.
    """
    place = {id(known): number for number, known in enumerate(before)}
    known = iter(sorted((g for g in listed if id(g) in place), key=lambda g: place[id(g)]))
    return [next(known) if id(each) in place else each for each in listed]


def with_hidden(listed: Sequence[Generation], every: Sequence[Generation]) -> list[Generation]:
    """Return *every* generation in the order of those that are *listed*; one that no listing shows
    keeps its place among the others.
    """
    place = {id(each): number for number, each in enumerate(listed)}
    # Those that no listing shows stand behind the last of the listed ones that came before them.
    behind: defaultdict[int, list[Generation]] = defaultdict(list)
    last = -1
    for each in every:
        if id(each) in place:
            last = max(last, place[id(each)])
        else:
            behind[last].append(each)
    shown = (one for number, each in enumerate(listed) for one in (each, *behind[number]))
    return [*behind[-1], *shown]


class OpenFiles:
    """Opens the files of generations through *tail*, and closes them, within *limits*."""

    def __init__(self, tail: Tail, limits: ReadLimits) -> None:
        self._tail = tail
        self._limits = limits

    def keep(self, generations: Iterable[Generation], now_s: float) -> None:
        """Open, and keep open, the files with unacknowledged bytes, and the newest one: it may be
        written to and removed between two looks at its folder.
        """
        for generation in list(generations):
            self._keep_open(generation, now_s)

    def open_unfinished(self, generations: Iterable[Generation], now_s: float) -> None:
        """Open each file that may still get bytes, though no unread bytes of it are known."""
        for generation in generations:
            if generation.is_done or generation.is_open or not self._limits.descriptors.has_room():
                continue
            try:
                self._tail.handle_of(generation, now_s)
            except NOT_READ:
                return  # reading meets the error again, and reports it

    def close_idle(self, generations: Iterable[Generation], now_s: float) -> None:
        """Close the files that are read and acknowledged so far, and were not used for a while; the
        newest one only where descriptors are short.
        """
        for generation in generations:
            handle = generation.handle
            if handle is None or generation.file is None:
                continue
            is_behind = generation.extent > generation.acked.offset
            is_idle = now_s - handle.used_s >= self._limits.idle_close_s
            if is_idle and not is_behind and not self._may_idle(generation):
                generation.close_handle()

    def _may_idle(self, generation: Generation) -> bool:
        """Return whether its file may be open though it has no unread bytes."""
        is_newest = generation.newer_since_s is None
        return is_newest and self._limits.descriptors.has_room_for_idle()

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
                if generation.is_unread and not generation.is_compressed:
                    # Before it is read, the file may be emptied and grow beyond its former length.
                    # Only its first bytes show that.
                    generation.observe(generation.handle, now_s)
            elif budget.has_room() if unread else self._may_idle(generation):
                self._tail.handle_of(generation, now_s)
        except NOT_READ:
            return  # reading meets the error again, and reports it


# A listing that is made while files are renamed may lack one of them. A file is gone when it is
# missing for as long as so many listings take.
_LISTINGS_UNTIL_GONE = 2


class FileAbsence:
    """Tells by *watermark* for how long no listing has shown a file; listings are *listing_s*
    apart.
    """

    def __init__(self, watermark: Watermark, listing_s: float) -> None:
        self._watermark = watermark
        self._gone_after_s = _LISTINGS_UNTIL_GONE * listing_s

    def is_known(self, since_s: float, now_s: float) -> bool:
        """Return whether it is known that no folder has a file that was missing since *since_s*,
        and no file that is not decided on may be that one.
        """
        return self._watermark.at(now_s) - since_s >= self._gone_after_s

    def may_turn_up(self, generation: Generation, now_s: float) -> bool:
        """Return whether listings may still show the file of *generation* under another name, so
        that no other one is to be taken for its copy.
        """
        if not generation.may_lie_elsewhere:
            return False
        since_s = generation.gone_since_s
        return since_s is None or self._watermark.listed(now_s) - since_s < self._gone_after_s


# Two listings come within so long.
LISTING_WAIT_S = 4.0
# A packer writes some GB within so long. A log that is written packed lacks its end for longer.
PACKING_MAX_S = 300.0


@dataclass(frozen=True, slots=True)
class _Packing:
    """A packed file that is not decided on. *seen_s* is when it was seen first, and *grown_s* when
    it was first seen to have *size* bytes.
    """

    size: int
    seen_s: float
    grown_s: float

    def is_late(self, wait_s: float, now_s: float) -> bool:
        """Return whether nothing was written to it for *wait_s*, or it was written for too long."""
        return now_s - self.grown_s >= wait_s or now_s - self.seen_s >= PACKING_MAX_S


class UnsureFiles:
    """Files of the last listing that could not be decided on. Newer files wait for them, for
    *patience_s* at most, so that lines keep their order.

    A generation in a file that was emptied after it was listed waits as well, for the next listing:
    a rotator copies a file before it empties it, and the rest of the former bytes is in that copy,
    which comes first, and which only a listing shows.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        # Since when each of them is not decided on, and, for the generations in newer files, since
        # when the last one of those that they wait for is. A file that can never be opened must not
        # use up the patience with the others.
        self._since_s: dict[tuple[int, int, int], float] = {}
        self._waits_since_s: dict[str, float] = {}
        self._emptied: Generation | None = None
        self._emptied_s = 0.0
        self._packing: dict[tuple[int, int, int], _Packing] = {}
        self._aside: tuple[int, int, int] | None = None
        self._aside_since_s = 0.0

    def without_strangers(
        self, files: Sequence[ChainFile], generations: Sequence[Generation], now_s: float
    ) -> tuple[ChainFile, ...]:
        """Return *files* without those that only have the name of a log that was put aside."""
        return tuple(
            file
            for file in files
            if not file.is_aside or self._may_be_log(file, files, generations, now_s)
        )

    def _may_be_log(
        self,
        aside: ChainFile,
        files: Sequence[ChainFile],
        generations: Sequence[Generation],
        now_s: float,
    ) -> bool:
        """Return whether *aside* is, or may be, a log of this source. If none of *generations* was
        seen in it, it may be one while nothing was read of a live file that is younger. After
        *patience_s* it is none: a rotator would have copied and removed it.
        """
        if any(each.identity == aside.identity for each in generations):
            return True
        begun = {each.identity for each in generations if each.read.offset > each.begin}
        if not any(
            # Without times of birth, any live file may be the younger one.
            file.is_live and file.identity not in begun and aside.born_ns <= file.born_ns
            for file in files
        ):
            return False
        if self._aside != aside.identity:
            self._aside, self._aside_since_s = aside.identity, now_s
        return now_s - self._aside_since_s < self._patience_s

    def decided(
        self, findings: Sequence[Finding], now_s: float, *, is_ending: bool
    ) -> list[Finding]:
        """Return *findings*, where a packed file is new if what it awaits does not come in time, or
        cannot come since all *is_ending*.
        """
        before, self._packing = self._packing, {}
        waits_s = {Awaited.END: self._patience_s, Awaited.TRUNCATION: LISTING_WAIT_S}
        decided: list[Finding] = []
        for finding in findings:
            wait_s = waits_s.get(finding.awaited) if isinstance(finding, Unsure) else None
            if wait_s is None:
                decided.append(finding)
                continue
            file = finding.file
            packing = before.get(file.identity) or _Packing(file.size, now_s, now_s)
            if packing.size != file.size:
                packing = replace(packing, size=file.size, grown_s=now_s)
            self._packing[file.identity] = packing
            is_late = is_ending or packing.is_late(wait_s, now_s)
            decided.append(New(file) if is_late else finding)
        return decided

    def note_emptied(self, made: Generation, now_s: float) -> None:
        """Note that *made* was found in a file that was emptied."""
        self._emptied, self._emptied_s = made, now_s

    def note_listing(self) -> None:
        """Note that the files were listed once more."""
        # A listing that was made before the file was emptied does not show the copy either.
        if self._emptied is not None and not self._emptied.is_listed_before_it_began:
            self._emptied = None

    def note(self, found: Sequence[tuple[Finding, str]], now_s: float) -> None:
        """Take the findings of a listing, oldest first, each with the generation in its file."""
        before, self._since_s, self._waits_since_s = self._since_s, {}, {}
        latest_s: float | None = None
        for finding, id in found:
            if isinstance(finding, Unsure):
                identity = finding.file.identity
                since_s = self._since_s[identity] = before.get(identity, now_s)
                latest_s = since_s if latest_s is None else max(latest_s, since_s)
            elif latest_s is not None:
                self._waits_since_s[id] = latest_s

    def has_to_wait(self, generation: Generation, now_s: float) -> bool:
        """Return whether *generation* must not be read yet."""
        if generation is self._emptied and now_s - self._emptied_s < LISTING_WAIT_S:
            return True
        since_s = self._waits_since_s.get(generation.id)
        return since_s is not None and now_s - since_s < self._patience_s

    def is_unsure(self, now_s: float) -> bool:
        """Return whether there is such a file; a generation without a file may lie in it."""
        return any(now_s - since_s < self._patience_s for since_s in self._since_s.values())


def unbound(passed: Sequence[Generation]) -> bool:
    """Forget the bounds of *passed* files, which no newer one goes on behind; return whether there
    is more to read of them.
    """
    bounded = [each for each in passed if each.bound is not None]
    for each in bounded:
        each.bound = None
    return any(each.is_waiting for each in bounded)


# All files of a folder may be invisible for a while: its disk is mounted late, or a scan is late.
# So as many generations are remembered as there were files, and some more.
class PastGenerations(Sequence[Generation]):
    """The generations of one source that are read, and whose files are gone; oldest first."""

    def __init__(self) -> None:
        self._gone: deque[Generation] = deque()
        self._files_seen = 0

    def __len__(self) -> int:
        return len(self._gone)

    def __getitem__(self, place: Any) -> Any:
        return self._gone[place]

    def __iter__(self) -> Iterator[Generation]:
        return iter(self._gone)

    def see(self, files: int) -> None:
        """Note how many *files* the source has now; 0 may mean that they are invisible."""
        if files:
            self._files_seen = files

    def add(self, generation: Generation) -> None:
        """Remember *generation*, and forget the oldest beyond the limit."""
        self._gone.append(generation)
        while len(self._gone) > GONE_MAX + self._files_seen:
            self._gone.popleft()

    def remove(self, generation: Generation) -> None:
        """Forget *generation*: it has a file again."""
        self._gone.remove(generation)

    def saved(self) -> list[list[Any]]:
        """Return it as JSON."""
        return [each.saved() for each in self._gone]

    def restore(self, rows: Sequence[Sequence[Any]], *, files: int) -> None:
        """Restore what `saved` returned, for a source that had so many *files* as well."""
        self._gone.extend(Generation.restore(list(row)) for row in rows)
        # All of these may be files that were invisible.
        self._files_seen = max(files, len(self._gone) - GONE_MAX, 0)


def note_newest(
    generations: Iterable[Generation], files: Sequence[ChainFile], now_s: float
) -> None:
    """Have each of *generations* know whether its file is the newest of *files*."""
    newest = files[-1] if files else None
    for generation in generations:
        if generation.file is not None and generation.file == newest:
            generation.be_newest()
        elif files:
            generation.note_newer(now_s)


def previous_of(
    generation: Generation, generations: Iterable[Generation], past: Sequence[Generation]
) -> Previous | None:
    """Return the generation before *generation*, whose first bytes are not read yet, with its
    length where its end was seen.
    """
    if generation.read.offset != 0:
        return None
    found = past[-1] if past else None
    for other in generations:
        if other is generation:
            break
        if other.read.offset > other.begin:
            found = other
    return Previous(found.id, found.length) if found is not None else None


def failing_of(generations: Iterable[Generation]) -> list[tuple[Path, str]]:
    """Return the files of *generations* that cannot be read now, each with the reason."""
    return [
        (each.file.path, each.failing_reason)
        for each in generations
        if each.failures and each.file is not None and not each.is_read
    ]


def may_have_unread(saved: dict[str, Any] | None, births: Iterable[list[Any]]) -> bool:
    """Return whether files of the chain that saved *saved*, and noted *births* since, may have
    bytes that were not read: a file whose end was not seen may have grown since.
    """
    rows = [*(saved["generations"] if saved is not None else ()), *births]
    known = [Generation.restore(row) for row in rows]
    return any(each.has_rest or not each.is_read for each in known)


def saved_identities(
    saved: dict[str, Any] | None, births: Iterable[list[Any]]
) -> list[tuple[int, int, int]]:
    """Return the identities of the files of the chain that saved *saved* and noted *births*."""
    rows = [*(saved["generations"] if saved is not None else ()), *births]
    found = [Generation.restore(row).identity for row in rows]
    return [identity for identity in found if identity is not None]
