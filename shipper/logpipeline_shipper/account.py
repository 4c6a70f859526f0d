"""The account of one source: which of the bytes that were sent collectors have confirmed.

Bytes that a server acknowledged can still be lost there: purged, expired, rolled back. So each
range that was sent stays in the account until every group of collectors has collected it, across
restarts, and also when its file is gone. A range that a group must have read by now, and does not
have, is owed: it is sent again, or reported as lost.

No clock and no connection. Only this module writes the fields of an account.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logpipeline.records import PROGRESS_HOLES_MAX, Committed, Progress
from logpipeline.spans import Span, inside, joined, outside, size_of

log = logging.getLogger(__name__)

# A collector that has read all of a stream has read what was acknowledged so long before.
DRAINED_S = 10.0
# Unconfirmed ranges of a generation that are kept apart; beyond that the oldest are joined.
SENT_MAX = 16
# Unconfirmed generations of a source. If a rotator is so many files ahead of the collectors, it has
# deleted the oldest ones anyway.
ENTRIES_MAX = 256
# Groups of collectors of one pipeline. More are taken for messages of another program.
GROUPS_MAX = 16

# What another process sent stands in messages whose sequences are not known. The first sequence
# that a stream gives stands for them: a group that began with the stream has read that far.
_FIRST = 1

# Causes: what happened to bytes that the server acknowledged.
REMOVED = "removed"  # by a purge, or one by one
EXPIRED = "expired"  # the stream's max_age passed before they were collected
ROLLED_BACK = "rolled-back"  # the server, or its disk, was put back to an older state
REFUSED = "refused"  # collectors do not take them, however often they are sent


class Gap(NamedTuple):
    """Bytes that were sent and are not collected, and the *cause* of that."""

    generation: str
    start: int
    end: int
    cause: str


class Sent(NamedTuple):
    """A range that the server acknowledged as message *sequence*, at *acked_s*."""

    start: int
    end: int
    sequence: int
    acked_s: float

    @property
    def span(self) -> Span:
        """Its bytes."""
        return self.start, self.end


class Confirmed(NamedTuple):
    """What a group has of a generation: all up to *offset*, but for *holes*. These are all holes up
    to *complete_to*; after that there may be further ones.
    """

    offset: int
    holes: tuple[Span, ...] = ()
    complete_to: int = 0

    @staticmethod
    def of(known: Committed) -> Confirmed:
        """Return what *known* reports of its generation. A report has a limited number of holes of
        the source, the oldest first.
        """
        complete_to = known.offset
        if len(known.holes) >= PROGRESS_HOLES_MAX:
            name, _, end = known.holes[-1]
            complete_to = end if name == known.generation else 0
        return Confirmed(known.offset, _holes_of(known), complete_to)

    def has(self, span: Span) -> bool:
        """Return whether the group certainly has all of *span*."""
        return span[1] <= self.complete_to and not self.lacks(span)

    def lacks(self, span: Span) -> list[Span]:
        """Return the parts of *span* that the group does not have."""
        start, end = span
        return joined([(max(start, self.offset), end), *inside(span, self.holes)])


@dataclass(slots=True)
class GenerationAccount:
    """One generation: shipping of it began at *begin*; *sent* are the ranges that not every group
    has confirmed; *owed* must be sent again, and *lost* be reported as lost, each with its cause.
    """

    begin: int
    sent: list[Sent] = field(default_factory=list)
    confirmed: dict[str, Confirmed] = field(default_factory=dict)
    owed: list[tuple[int, int, str]] = field(default_factory=list)
    lost: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is unconfirmed, owed or unreported."""
        return not (self.sent or self.owed or self.lost)

    def confirmed_by(self, group: str) -> Confirmed:
        """Return the last report of *group*."""
        return self.confirmed.get(group, Confirmed(self.begin))


def admit(groups: dict[str, int], progress: Progress) -> bool:
    """Note in *groups* that the group of *progress*, an answer, is to have all that is sent; return
    whether it is one of them now.
    """
    if progress.group not in groups and len(groups) >= GROUPS_MAX:
        return False
    groups[progress.group] = progress.begun
    return True


@dataclass(slots=True)
class Account:
    """See the module. *groups* are those that have answered about the host, each with the sequence
    after which it began to read; the accounts of a host share them. *answered_s* is the time of the
    last answer to a question.
    """

    groups: dict[str, int] = field(default_factory=dict)
    answered_s: float = 0.0
    _entries: dict[str, GenerationAccount] = field(default_factory=dict)

    # -- what was sent

    def knows(self, generation: str) -> bool:
        """Return whether something of *generation* was sent lately."""
        return generation in self._entries

    def begin(self, generation: str, start: int) -> None:
        """Note that the bytes from *start* of *generation* are about to be sent."""
        if generation in self._entries:
            return
        self._entries[generation] = GenerationAccount(start)
        if len(self._entries) > ENTRIES_MAX:
            name, entry = next(iter(self._entries.items()))
            log.error(
                "collectors confirm too few files; the oldest one is not tracked any more",
                extra={"generation": name, "unconfirmed_bytes": size_of(map(_span, entry.sent))},
            )
            del self._entries[name]

    def acknowledged(self, generation: str, span: Span, *, sequence: int, now_s: float) -> None:
        """Note that the server has the bytes of *span*, in message *sequence*."""
        entry = self._entries.setdefault(generation, GenerationAccount(span[0]))
        made = [Sent(*span, sequence, now_s)]
        for sent in entry.sent:
            made += [sent._replace(start=a, end=b) for a, b in outside(sent.span, [span])]
        made.sort()
        while len(made) > SENT_MAX:
            made[:2] = [_joined(made[0], made[1])]
        entry.sent = made
        self._prune()

    def recall(self, known: Committed, now_s: float) -> None:
        """Note what collectors lack of a generation that another process sent."""
        entry = self._entries.setdefault(known.generation, GenerationAccount(known.begun))
        entry.sent = [Sent(*hole, _FIRST, now_s) for hole in _holes_of(known)]

    # -- reports of collectors

    def confirm(self, group: str, known: Committed) -> list[Gap]:
        """Note the report of *group* on one generation, and return the holes that it names. A group
        that has not answered yet says nothing.
        """
        if group not in self.groups:
            return []
        entry = self._entries.get(known.generation)
        if entry is not None:
            entry.confirmed[group] = Confirmed.of(known)
        # A report on the newest generation names the holes of all.
        gaps = [
            Gap(name, *part, REMOVED)
            for name, start, end in known.holes
            for part in self._sent_of(name, (start, end))
        ]
        self._prune()
        return gaps

    def answer(
        self, progress: Progress, known: Mapping[str, Committed | None], now_s: float
    ) -> list[Gap]:
        """Note what the group of *progress* has of the generations that it was asked for, None for
        nothing, and return what it must have read by now, and does not have.
        """
        if not admit(self.groups, progress):
            return []
        self.answered_s = now_s
        gaps: list[Gap] = []
        for name, committed in known.items():
            # An answer may come late: the generation may have been confirmed since.
            if (entry := self._entries.get(name)) is None:
                continue
            confirmed = Confirmed.of(committed) if committed is not None else Confirmed(entry.begin)
            entry.confirmed[progress.group] = confirmed
            for sent in entry.sent:
                if _was_read(sent, progress, now_s):
                    cause = _cause(sent, progress, now_s)
                    for start, end in confirmed.lacks(sent.span):
                        _add(gaps, Gap(name, start, end, cause))
        self._prune()
        return gaps

    def forget_group(self, group: str) -> None:
        """Wait for *group* no longer."""
        self.groups.pop(group, None)
        for entry in self._entries.values():
            entry.confirmed.pop(group, None)
        self._prune()

    def _sent_of(self, generation: str, span: Span) -> list[Span]:
        entry = self._entries.get(generation)
        return inside(span, [sent.span for sent in entry.sent]) if entry is not None else []

    def _prune(self) -> None:
        newest = next(reversed(self._entries), None)
        for name, entry in list(self._entries.items()):
            if self.groups:
                entry.sent = [sent for sent in entry.sent if not self._is_everywhere(entry, sent)]
            if entry.is_settled and name != newest:
                del self._entries[name]

    def _is_everywhere(self, entry: GenerationAccount, sent: Sent) -> bool:
        return all(
            sent.sequence <= begun or entry.confirmed_by(group).has(sent.span)
            for group, begun in self.groups.items()
        )

    # -- what is owed

    def owe(self, gap: Gap) -> None:
        """Note that the bytes of *gap* are to be sent again."""
        entry = self._entries.get(gap.generation)
        if entry is None:
            return
        kept = [(start, end) for start, end, _ in (*entry.owed, *entry.lost)]
        fresh = outside((gap.start, gap.end), kept)
        entry.owed = sorted([*entry.owed, *((*part, gap.cause) for part in fresh)])

    def doubt(self, cause: str) -> bool:
        """Note that all bytes that are not collected may be lost; return whether there are any."""
        is_any = False
        for name, entry in self._entries.items():
            for sent in entry.sent:
                lacking = [sent.span]
                if self.groups:
                    lacking = joined(
                        part
                        for group, begun in self.groups.items()
                        if sent.sequence > begun
                        for part in entry.confirmed_by(group).lacks(sent.span)
                    )
                for part in lacking:
                    is_any = True
                    self.owe(Gap(name, *part, cause))
        return is_any

    def forget_begun(self) -> None:
        """Note that the stream went back: other messages have the sequences that groups left out.
        Their next answers say where they begin in what the stream is now.
        """
        for group in self.groups:
            self.groups[group] = 0

    def owed(self) -> list[Gap]:
        """Return the gaps to send again, those of the oldest generation first."""
        return [Gap(name, *owed) for name, entry in self._entries.items() for owed in entry.owed]

    def pay(self, generation: str, span: Span) -> None:
        """Note that the bytes of *span* were sent again."""
        entry = self._entries.get(generation)
        if entry is not None:
            entry.owed = _without(entry.owed, span)

    def lose(self, gap: Gap) -> None:
        """Note that the bytes of *gap* can never be sent: that is reported to collectors."""
        entry = self._entries.setdefault(gap.generation, GenerationAccount(gap.start))
        span = (gap.start, gap.end)
        entry.owed = _without(entry.owed, span)
        entry.lost = sorted([*_without(entry.lost, span), (*span, gap.cause)])

    def next_loss(self) -> Gap | None:
        """Return the loss that is to be reported next."""
        return next(
            (Gap(name, *lost) for name, e in self._entries.items() for lost in e.lost), None
        )

    def name(self, gap: Gap) -> None:
        """Note that *gap* was reported to collectors, or cannot be reported."""
        entry = self._entries[gap.generation]
        entry.lost = _without(entry.lost, (gap.start, gap.end))
        self._prune()

    def begins_at(self, generation: str, offset: int) -> bool:
        """Return whether shipping of *generation* began at *offset*, and not at 0."""
        entry = self._entries.get(generation)
        return entry is not None and 0 < offset == entry.begin

    def began_at(self, generation: str) -> int:
        """Return the offset at which shipping of *generation* began, as far as is known."""
        entry = self._entries.get(generation)
        return entry.begin if entry is not None else 0

    # -- state

    def unconfirmed(self) -> list[str]:
        """Return the generations with sent bytes that not every group has confirmed."""
        return [name for name, entry in self._entries.items() if entry.sent]

    def open_spans(self, generation: str) -> list[Span]:
        """Return the bytes of *generation* that were sent and are not confirmed by every group, and
        those that are lost.
        """
        entry = self._entries.get(generation)
        if entry is None:
            return []
        return joined([*map(_span, entry.sent), *((start, end) for start, end, _ in entry.lost)])

    @property
    def is_settled(self) -> bool:
        """Whether collectors have all bytes that were sent, or know that they are lost."""
        return all(entry.is_settled for entry in self._entries.values())

    @property
    def has_debts(self) -> bool:
        """Whether something must be sent again, or reported as lost."""
        return any(entry.owed or entry.lost for entry in self._entries.values())

    @property
    def on_the_way(self) -> int:
        """Bytes that were sent, and are not confirmed by every group."""
        return sum(size_of(map(_span, entry.sent)) for entry in self._entries.values())

    @property
    def to_be_named(self) -> int:
        """Bytes that are lost, and not yet reported to collectors."""
        return sum(
            size_of((start, end) for start, end, _ in entry.lost)
            for entry in self._entries.values()
        )

    def waits_since_s(self) -> float:
        """Return the time at which the oldest unconfirmed range was acknowledged; infinity if all
        are confirmed.
        """
        times = (sent.acked_s for entry in self._entries.values() for sent in entry.sent)
        return min(times, default=math.inf)

    # -- saved state

    def saved(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: _row(entry) for name, entry in self._entries.items()}

    @staticmethod
    def restore(saved: dict[str, Any], now_s: float) -> Account:
        """Return the account that `saved` described, without groups; its ranges count as
        acknowledged at *now_s*.
        """
        return Account({}, 0.0, {str(n): _entry(row, now_s) for n, row in saved.items()})


def _span(sent: Sent) -> Span:
    return sent.span


def _joined(first: Sent, second: Sent) -> Sent:
    return second._replace(start=first.start, sequence=max(first.sequence, second.sequence))


def _add(gaps: list[Gap], gap: Gap) -> None:
    """Add *gap* to *gaps*, or extend the last of them if *gap* continues it."""
    last = gaps[-1] if gaps else Gap("", 0, 0, "")
    if (last.generation, last.cause, last.end) == (gap.generation, gap.cause, gap.start):
        gaps[-1] = last._replace(end=gap.end)
    else:
        gaps.append(gap)


def _holes_of(known: Committed) -> tuple[Span, ...]:
    return tuple((start, end) for name, start, end in known.holes if name == known.generation)


def _was_read(sent: Sent, progress: Progress, now_s: float) -> bool:
    """Return whether the group of *progress* must have read the message of *sent*."""
    if sent.sequence <= progress.begun:
        return False
    # Sequences cannot be compared if the stream was rolled back or made anew. But if a group has
    # read all of the stream, nothing more comes.
    is_drained = not progress.pending and now_s - sent.acked_s >= DRAINED_S
    return is_drained or sent.sequence <= progress.sequence


def _cause(sent: Sent, progress: Progress, now_s: float) -> str:
    if sent.sequence >= progress.first:
        return ROLLED_BACK if sent.sequence > progress.sequence else REMOVED
    is_old = progress.max_age_s and now_s - sent.acked_s >= progress.max_age_s
    return EXPIRED if is_old else REMOVED


def _without(rows: list[tuple[int, int, str]], span: Span) -> list[tuple[int, int, str]]:
    return [(*part, cause) for start, end, cause in rows for part in outside((start, end), [span])]


def _row(entry: GenerationAccount) -> list[Any]:
    return [
        entry.begin,
        [[sent.start, sent.end, sent.sequence] for sent in entry.sent],
        {group: list(confirmed) for group, confirmed in entry.confirmed.items()},
        entry.owed,
        entry.lost,
    ]


def _entry(row: list[Any], now_s: float) -> GenerationAccount:
    begin, sent, confirmed, owed, lost = row
    return GenerationAccount(
        int(begin),
        [Sent(int(start), int(end), int(sequence), now_s) for start, end, sequence in sent],
        {
            str(group): Confirmed(
                int(offset), tuple((int(a), int(b)) for a, b in holes), int(complete_to)
            )
            for group, (offset, holes, complete_to) in confirmed.items()
        },
        [(int(start), int(end), str(cause)) for start, end, cause in owed],
        [(int(start), int(end), str(cause)) for start, end, cause in lost],
    )
