"""Decides which bytes may have been sent before, in which pieces they are sent again, and what
proves that a server lost them. No clock, no connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from logpipeline import cri, wire
from logpipeline.nats.jetstream import StoredMessage
from logpipeline_shipper.account import GROUPS_MAX, Gap
from logpipeline_shipper.checkpoint import Intent, Key, LastAck, Position
from logpipeline_shipper.files.chunk import Chunk, InFile, last_cut, times_of

# If a message of this size is refused as too large, its size is not the reason.
PIECE_BYTES_MIN = 1024

# A gap is filled again only after collectors had the time to read what filled it.
TRY_INTERVAL_S = 30.0
TRIES_MAX = 5
TRACKED_MAX = 10_000
# A subject that is empty after this time lost its messages by the stream's retention.
EMPTY_SUBJECT_IS_LOSS_S = 3600.0


# Cuts are between lines and outside runs of fragments; only a single line that is too large is cut
# inside, and marked so.
def split_at(chunk: Chunk, offset: int, log_format: wire.Format) -> tuple[Chunk, Chunk]:
    """Return the parts of *chunk* before and after *offset*, an offset of the generation."""
    assert chunk.start < offset < chunk.end
    size = offset - chunk.start
    head, tail = chunk.data[:size], chunk.data[size:]
    is_inside = not head.endswith(b"\n")
    checksums = wire.Checksums.around(head, chunk.checksums.before)
    there, unredacted = chunk.unredacted, None
    if there is not None:
        unredacted = InFile.around(there.data[:size], there.checksums.before)
    first = replace(
        chunk,
        end=offset,
        data=head,
        lines=head.count(b"\n") + is_inside,
        last_time_ns=times_of(head, log_format)[1] or chunk.first_time_ns,
        checksums=checksums,
        ends_inside_line=is_inside,
        unredacted=unredacted,
    )
    second = replace(
        chunk,
        start=offset,
        data=tail,
        lines=tail.count(b"\n") + (not tail.endswith(b"\n")),
        first_time_ns=times_of(tail, log_format)[0] or chunk.last_time_ns,
        previous=None,
        checksums=wire.Checksums(checksums.after, chunk.checksums.after),
        starts_inside_line=is_inside,
        begins=False,
        unredacted=there and InFile.around(there.data[size:], first.in_file.checksums.after),
    )
    return first, second


def halves(chunk: Chunk, log_format: wire.Format) -> tuple[Chunk, Chunk] | None:
    """Return *chunk* as two parts of about equal size, or None if it is too small."""
    size = len(chunk.data)
    if size < 2 * PIECE_BYTES_MIN:
        return None
    half = size // 2
    cut = (
        last_cut(chunk.data[:half], log_format)
        or _first_cut(chunk.data, half, log_format)
        # One line, or one run of fragments: cut between fragments if possible, else anywhere.
        or chunk.data.rfind(b"\n", 0, half) + 1
        or half
    )
    return split_at(chunk, chunk.start + cut, log_format)


def single_lines(chunk: Chunk, log_format: wire.Format) -> Iterator[Chunk]:
    """Yield *chunk* line by line, a run of fragments as one line."""
    data, begin, checksum = chunk.data, 0, chunk.checksums.before
    there, unredacted = chunk.unredacted, None
    before_there = chunk.in_file.checksums.before
    for end in _line_ends(data, log_format):
        is_first, is_last = begin == 0, end == len(data)
        if is_first and is_last:
            yield chunk
            return
        line = data[begin:end]
        checksums = wire.Checksums.around(line, checksum)
        if there is not None:
            unredacted = InFile.around(there.data[begin:end], before_there)
            before_there = unredacted.checksums.after
        first, last = times_of(line, log_format)
        yield replace(
            chunk,
            start=chunk.start + begin,
            end=chunk.start + end,
            data=line,
            lines=line.count(b"\n") + (not line.endswith(b"\n")),
            first_time_ns=first or chunk.first_time_ns,
            last_time_ns=last or chunk.first_time_ns,
            previous=chunk.previous if is_first else None,
            checksums=checksums,
            starts_inside_line=is_first and chunk.starts_inside_line,
            ends_inside_line=is_last and chunk.ends_inside_line,
            begins=is_first and chunk.begins,
            unredacted=unredacted,
        )
        begin, checksum = end, checksums.after


def within(chunk: Chunk, start: int, end: int, log_format: wire.Format) -> Chunk:
    """Return the part of *chunk* between the offsets *start* and *end* of the generation."""
    if chunk.start < start:
        _, chunk = split_at(chunk, start, log_format)
    if end < chunk.end:
        chunk, _ = split_at(chunk, end, log_format)
    return chunk


def _line_ends(data: bytes, log_format: wire.Format) -> Iterator[int]:
    """Yield the ends of lines, or of runs of fragments, in *data*; the last is that of *data*."""
    begin = end = 0
    while end := data.find(b"\n", end) + 1:
        is_whole = log_format != "cri" or cri.last_cut(data[begin:end]) == end - begin
        if is_whole and end < len(data):
            yield end
            begin = end
    yield len(data)


def _first_cut(data: bytes, at_least: int, log_format: wire.Format) -> int:
    end = data.find(b"\n", at_least) + 1
    if log_format != "cri":
        return end if end < len(data) else 0
    while end and end < len(data):
        if cri.last_cut(data[:end]) == end:
            return end
        end = data.find(b"\n", end) + 1
    return 0


# A message that is not certainly the first sending of its bytes is marked, so that every reader
# checks it. A superfluous mark costs a check, a missing one a duplicate.
class Piece(NamedTuple):
    """A part of a chunk that becomes one message. *is_unsure*: it is marked as sent before, but no
    earlier sending is known.
    """

    chunk: Chunk
    attempt: str
    resend: bool
    is_unsure: bool = False


class EarlierSends:
    """The earlier sends of one source. *is_in_doubt*: all bytes of its files may have been sent
    before, until all have been read once.
    """

    __slots__ = ("_noted", "_sent_to", "is_in_doubt")

    def __init__(self, intents: Iterable[Intent], *, is_in_doubt: bool) -> None:
        self.is_in_doubt = is_in_doubt
        self._sent_to: dict[str, int] = {}
        # The last intent of a start counts: a batch that was too large was sent in smaller ones.
        self._noted: dict[Position, Intent] = {}
        self.note(intents)

    def note(self, intents: Iterable[Intent]) -> None:
        """Add *intents*, in the order in which they were noted."""
        for intent in intents:
            self._noted[intent.generation, intent.start] = intent
            sent_to = self._sent_to.get(intent.generation, 0)
            self._sent_to[intent.generation] = max(sent_to, intent.end)

    @property
    def noted(self) -> tuple[Intent, ...]:
        """The intents of former processes whose bytes are not acknowledged yet."""
        return tuple(self._noted.values())

    def pieces(self, chunk: Chunk, log_format: wire.Format) -> list[Piece]:
        """Return *chunk* in the pieces in which it was sent before, the rest as one.

        They end before *chunk* does if a piece that was sent before goes beyond *chunk*: that
        piece has to be read as a whole.
        """
        pieces: list[Piece] = []
        rest = chunk
        while True:
            noted = self._noted.get((rest.generation, rest.start))
            if noted is None or not rest.start < noted.end < rest.end:
                break
            piece, rest = split_at(rest, noted.end, log_format)
            pieces.append(Piece(piece, noted.attempt, True))
        if noted is not None and noted.end > rest.end and pieces:
            return pieces
        attempt = noted.attempt if noted and noted.end == rest.end else ""
        was_sent = rest.start < self._sent_to.get(rest.generation, 0)
        is_unsure = self.is_in_doubt and not was_sent
        pieces.append(Piece(rest, attempt, was_sent or is_unsure, is_unsure))
        return pieces

    def acknowledged(self, chunk: Chunk) -> None:
        """Forget the intents of the bytes of *chunk*."""
        if self._noted:
            for position in [
                (generation, start)
                for generation, start in self._noted
                if generation == chunk.generation and start < chunk.end
            ]:
                del self._noted[position]

    def read_all(self) -> None:
        """Note that all bytes of the files have been read: those that follow are new."""
        self.is_in_doubt = False
        self._sent_to.clear()
        self._noted.clear()


# A loss needs a proof; lag is none. Proofs are: the last message of the subject is not the one that
# was acknowledged last, sequences went back, or a collector counts one more roll-back.
def is_lost(last: LastAck, found: StoredMessage | None, now_s: float) -> bool:
    """Return whether *found*, the last message of a subject now, proves that *last* is gone.

    A later message of this shipper is no proof: its acknowledgement may not have arrived.
    """
    if found is None:
        return now_s - last.time_s < EMPTY_SUBJECT_IS_LOSS_S
    if found.sequence != last.sequence:
        return found.sequence < last.sequence
    return _identifier(found) != last.identifier


class Due(Enum):
    """When to send bytes again that a collector lacks."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class Tries:
    """Counts how often each gap was filled, so that none is filled too often or for ever."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[Key, str, int, int], tuple[int, float]] = OrderedDict()

    def due(self, key: Key, gap: Gap, now_s: float) -> Due:
        """Return when to fill *gap*; `Due.NOW` counts as a try, `Due.NEVER` is returned once."""
        name = (key, gap.generation, gap.start, gap.end)
        tries, last_s = self._tries.pop(name, (0, -TRY_INTERVAL_S))
        is_early = now_s - last_s < TRY_INTERVAL_S
        if tries > TRIES_MAX or (tries and is_early):
            self._tries[name] = (tries, last_s)
            return Due.LATER
        self._tries[name] = (tries + 1, now_s)
        if len(self._tries) > TRACKED_MAX:
            self._tries.popitem(last=False)
        return Due.NEVER if tries == TRIES_MAX else Due.NOW


class Rollbacks:
    """The number of roll-backs of each partition, as each group of collectors answered last."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def is_higher(self, group: str, partition: int, count: int) -> bool:
        """Return whether *count* is higher than that of the last answer."""
        known = self.counts.get(_name(group, partition))
        return known is not None and count > known

    def rose(self, group: str, partition: int, count: int) -> bool:
        """Note *count*, of an answer, and return whether it is higher than that of the last one;
        the first one is not.
        """
        is_higher, name = self.is_higher(group, partition, count), _name(group, partition)
        if name in self.counts or len(self.counts) < GROUPS_MAX * 1024:
            # Also a lower one: where the bucket was lost, collectors count anew.
            self.counts[name] = count
        return is_higher

    def forget(self, group: str) -> None:
        """Forget what *group* counted."""
        for name in [name for name in self.counts if name.partition("/")[2] == group]:
            del self.counts[name]


def _name(group: str, partition: int) -> str:
    return f"{partition}/{group}"


def _identifier(found: StoredMessage) -> str:
    try:
        return wire.parse_headers(found.headers).get(wire.MESSAGE_ID, "")
    except wire.BadMessage:
        return ""
