"""Which generation each file of a listing is.

Files are renamed, gzipped, copied, truncated and deleted between two looks, and inodes are used
again; the one thing that stays is content. So a file is a known generation when it has the bytes
that were read of it: its head, and what lies before the offset.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from logpipeline.generation import generation_of
from logpipeline.wire import Previous
from logpipeline_shipper.files.comparing import (
    NOT_OBSERVED,
    Open,
    begin_alike,
    goes_on_in,
    holds,
    is_copy,
)
from logpipeline_shipper.files.counts import Counts
from logpipeline_shipper.files.generations import Generation, Head, Mark
from logpipeline_shipper.files.past import PAST_MAX, Past
from logpipeline_shipper.files.reading import Content, Reader
from logpipeline_shipper.files.sources import ChainFile

# How often a look begins again, because a file taken for granted turned out to be another.
_PASSES_MAX = 8


class _Stale(Exception):
    """The file of *generation* was taken for granted, and holds other bytes."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        super().__init__()


class Lineage:
    """The generations of one source, oldest first, and the files that they lie in."""

    def __init__(self, counts: Counts, open_file: Open) -> None:
        self.generations: list[Generation] = []
        self.past: deque[Past] = deque(maxlen=PAST_MAX)
        self._counts = counts
        self._open = open_file
        # Copies of a generation whose original is still there: what copytruncate makes.
        self._copies: dict[tuple[int, int], tuple[Generation, ChainFile]] = {}
        self._unnamed: dict[tuple[int, int], Generation] = {}
        self._first = True

    def update(self, files: tuple[ChainFile, ...], now_s: float) -> None:
        """Find the generation of each of *files* (oldest first), and make new ones for the rest."""
        for _ in range(_PASSES_MAX):
            found, unknown = self._match_keys(files, now_s)
            self._note_gone(found, now_s)
            try:
                self._match_content(files, found, unknown, now_s)
            except _Stale as stale:
                self._drop_identity(stale.generation, now_s)
            else:
                break
        self._order([found[file] for file in files if file in found])
        self._note_newer(files, now_s)
        self._bury_done()
        keys = {file.key for file in files}
        self._copies = {key: copy for key, copy in self._copies.items() if key in keys}
        self._unnamed.clear()
        self._first = False

    def replace(self, generation: Generation, now_s: float, *, truncated: bool) -> None:
        """Note that the file of *generation* holds other bytes now.

        A copy of it, where there is one, takes its place; the file begins a new generation.
        """
        file, place = generation.file, self.generations.index(generation)
        generation.replaced = True
        if truncated:
            self._counts.truncations += 1
        else:
            self._counts.restarts += 1
        generation.lose_file(now_s)
        for key, (original, copy) in list(self._copies.items()):
            if original is generation and self._bind_if_same(generation, copy):
                del self._copies[key]
        if file is not None:
            self._succeed(place, file)
            if generation.file is not None:
                generation.newer_since_s = now_s

    def _succeed(self, place: int, file: ChainFile) -> None:
        """Begin a generation in *file*, after the one at *place*."""
        try:
            successor = self._recognise(file, is_newest=True, closed=file.compressed)
        except _Stale:
            successor = None
        successor = successor or Generation(None)
        if successor not in self.generations:
            self.generations.insert(place + 1, successor)
        successor.bind(file)
        successor.listed_size = 0  # the listing told of the bytes before

    def recognise_again(self, generation: Generation, now_s: float, *, closed: bool) -> None:
        """Find out which generation the file of *generation*, which had no name yet, is."""
        file = generation.file
        assert file is not None
        place = self.generations.index(generation)
        generation.close_handle()
        self.generations.remove(generation)
        found = self._recognise(file, is_newest=False, closed=closed)
        if found is None or found in self.generations:
            if found is not None:
                self._rebind(found, file)
            return
        found.bind(file)
        found.go_on_from(generation)
        self.generations.insert(place, found)

    def name(self, generation: Generation, head: Head, reader: Content) -> None:
        """Give *generation* its name: that of its head, unless another one of the source has it."""
        taken = {other.name for other in self.generations} | {past.name for past in self.past}
        device, inode = generation.key or (0, 0)
        name, number = head.name, 0
        while name in taken:
            distinction = f"{device}:{inode}:{number}" if number else f"{device}:{inode}"
            name = generation_of(reader.read(0, head.size), distinction=distinction)
            number += 1
        generation.head, generation.name = head, name

    def previous(self, generation: Generation) -> Previous | None:
        """Return the generation before *generation*, with its length where its end was seen."""
        before = None
        for other in self.generations:
            if other is generation:
                break
            if other.name:
                before = Previous(other.name, other.length if other.closed else None)
        if before is None and self.past:
            before = Previous(self.past[-1].name, self.past[-1].length)
        return before

    def bury(self, generation: Generation) -> None:
        """Forget *generation* but for its name and its end."""
        generation.close_handle()
        self.generations.remove(generation)
        if generation.head is not None:
            length = generation.length if generation.closed else None
            self.past.append(Past(generation.name, generation.head, length, generation.mark))

    def saved(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON."""
        return {
            "generations": [gen.saved() for gen in self.generations if gen.name],
            "past": [
                [past.name, past.head.name, past.head.size, past.length, *past.mark.saved()]
                for past in self.past
            ],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what `saved` returned; files are found by the next `update`."""
        self.generations = [Generation.restore(row) for row in saved["generations"]]
        for name, head, head_size, length, *mark in saved["past"]:
            self.past.append(Past(name, Head(head, head_size), length, Mark(*mark)))
        self._first = False

    def _match_keys(
        self, files: tuple[ChainFile, ...], now_s: float
    ) -> tuple[dict[ChainFile, Generation], list[ChainFile]]:
        by_key = {(gen.key, gen.is_compressed): gen for gen in self.generations if gen.key}
        found: dict[ChainFile, Generation] = {}
        unknown = []
        for file in files:
            generation = by_key.get((file.key, file.compressed))
            if generation is not None and self._is_same(generation, file):
                self._rebind(generation, file)
                found[file] = generation
            else:
                if generation is not None:
                    self._drop_identity(generation, now_s, file.path)
                unknown.append(file)
        return found, unknown

    def _note_gone(self, found: dict[ChainFile, Generation], now_s: float) -> None:
        there = set(map(id, found.values()))
        for generation in self.generations:
            if id(generation) not in there:
                generation.file = None
                if generation.gone_since_s is None:
                    generation.gone_since_s = now_s

    def _match_content(
        self,
        files: tuple[ChainFile, ...],
        found: dict[ChainFile, Generation],
        unknown: list[ChainFile],
        now_s: float,
    ) -> None:
        for file in unknown:
            original = self._copies[file.key][0] if file.key in self._copies else None
            if original is not None and original.file is not None:
                if is_copy(self._open, file, original):
                    self._copies[file.key] = (original, file)
                    continue
                del self._copies[file.key]
                raise _Stale(original)
            generation = self._recognise(file, is_newest=file is files[-1], closed=file.compressed)
            if generation is None:
                continue
            if generation not in self.generations:
                self.generations.append(generation)
                if file.key in self._unnamed:
                    generation.go_on_from(self._unnamed[file.key])
            self._rebind(generation, file)
            found[file] = generation

    def _is_same(self, generation: Generation, file: ChainFile) -> bool:
        """Return whether *file*, which has the inode of *generation*, holds its bytes."""
        if not generation.name:
            return False
        handle = generation.handle
        if handle is not None and handle.is_open and handle.key == file.key:
            return (
                True  # nobody gets an inode that we hold open; a truncation shows when it is read
            )
        known = generation.file
        if known is not None and (known.size, known.mtime_ns) == (file.size, file.mtime_ns):
            return True
        if known is not None and known.path == file.path and not generation.closed:
            return True  # a live file that grew: whoever opens it looks at its bytes
        return holds(self._open, generation, file, unseen=True)

    def _rebind(self, generation: Generation, file: ChainFile) -> None:
        known = generation.length if generation.closed else None
        generation.bind(file)
        if known is not None and not file.compressed and file.size > known:
            generation.reopen()

    def _drop_identity(
        self, generation: Generation, now_s: float, path: Path | None = None
    ) -> None:
        """Note that the file of *generation*, now at *path*, holds other bytes."""
        if not generation.name:
            generation.close_handle()
            self.generations.remove(generation)
            self._unnamed[generation.key or (0, 0)] = generation
            return
        if not generation.is_done:
            known = generation.file.path if generation.file is not None else None
            if generation.restored is None and path in (None, known):
                self._counts.truncations += 1
            else:
                self._counts.restarts += 1
            generation.replaced = True
        generation.lose_file(now_s)

    def _recognise(self, file: ChainFile, *, is_newest: bool, closed: bool) -> Generation | None:
        """Return the generation of a file with an unknown inode; None if it is a mere copy."""
        try:
            reader = self._open(file)
        except NOT_OBSERVED:
            return Generation(None)
        try:
            head = Head.of(reader, closed=closed)
            return self._by_content(file, reader, head, is_newest=is_newest)
        except OSError:
            return Generation(None)
        finally:
            reader.close()

    def _by_content(
        self, file: ChainFile, reader: Reader, head: Head | None, *, is_newest: bool
    ) -> Generation | None:
        new = Generation(None)
        new.size = reader.size()
        if head is None:
            return new
        for known in [gen for gen in self.generations if gen.head == head]:
            if known.file is not None and not holds(self._open, known, known.file, unseen=True):
                raise _Stale(known)
            if known.file is None and goes_on_in(known, reader):
                known.replaced = False
                return known
            if not (is_newest or self._first) and is_copy(self._open, file, known):
                self._copies[file.key] = (known, file)
                return None
        for past in [past for past in self.past if past.head == head and past.length is not None]:
            if past.mark.matches(reader):
                return self._exhume(past)
        new = self._nameless(reader) or new
        new.key = file.key
        self.name(new, head, reader)
        return new

    def _nameless(self, reader: Reader) -> Generation | None:
        """Return the generation that vanished before its first line was complete, if *reader* has
        its bytes.
        """
        for known in self.generations:
            if known.name or known.file is not None:
                continue
            handle = known.handle
            if handle is None or not handle.is_open:
                if reader.compressed and known.size <= reader.size():
                    return known  # nothing of it is left to compare, and nothing was read of it
                continue
            if begin_alike(reader, handle):
                return known
        return None

    def _exhume(self, past: Past) -> Generation:
        self.past.remove(past)
        generation = Generation(None, past.head, past.name)
        generation.restored = past.mark
        generation.offset = generation.acked = generation.no_cut_before = past.mark.offset
        generation.finish(past.length)
        return generation

    def _bind_if_same(self, generation: Generation, file: ChainFile) -> bool:
        if generation.file is not None or not holds(self._open, generation, file, unseen=False):
            return False
        generation.bind(file)
        generation.replaced = False
        return True

    def _order(self, listed: list[Generation]) -> None:
        """Keep the generations without a file where they were among the others."""
        order = list(listed)
        for index, generation in enumerate(self.generations):
            if generation not in order:
                before = [order.index(gen) for gen in self.generations[:index] if gen in order]
                order.insert(max(before, default=-1) + 1, generation)
        self.generations = order

    def _note_newer(self, files: tuple[ChainFile, ...], now_s: float) -> None:
        for generation in self.generations:
            is_newest = generation.file is not None and generation.file == files[-1]
            if is_newest:
                generation.newer_since_s = None
            elif generation.newer_since_s is None and files:
                generation.newer_since_s = now_s

    def _bury_done(self) -> None:
        for generation in list(self.generations):
            if generation.file is None and generation.is_done:
                self.bury(generation)
            elif generation.is_done and generation.name:
                generation.close_handle()
                generation.forget_tails()
