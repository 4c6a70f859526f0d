"""Settles which empty line is which.

An empty line carries no number. Where two collectors took turns, an empty line may be one of
several; it is all well if there is any way to give each one a place of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from logpipeline_demo.expected import ExpectedSource
from logpipeline_demo.intervals import Intervals
from logpipeline_demo.judge import Blanks
from logpipeline_demo.lines import SourceKey

Place = tuple[SourceKey, int]


class Known(Protocol):
    """What is known of a source: what is expected, and what of that was seen."""

    @property
    def source(self) -> ExpectedSource: ...

    @property
    def seen(self) -> Intervals: ...


def candidates_of(known: Mapping[SourceKey, Known], blanks: Blanks) -> list[Place]:
    """Return the missing empty lines that *blanks* can be: those between the lines around them,
    and where lines stand late, those next to either line.
    """
    found = dict.fromkeys(_following(known, blanks.before))
    found |= dict.fromkeys(_preceding(known, blanks.after))
    for key in blanks.homes:
        first = blanks.before[1] + 1 if blanks.before and blanks.before[0] == key else 0
        end = known[key].source.attempted_end
        if blanks.after and blanks.after[0] == key:
            end = blanks.after[1]
        for start, stop in known[key].seen.missing(first, end):
            blank = known[key].source.is_blank
            found |= dict.fromkeys((key, seq) for seq in range(start, stop) if blank(seq))
    return list(found)


def _following(known: Mapping[SourceKey, Known], before: Place | None) -> Iterator[Place]:
    """Yield the missing empty lines right after *before*, whatever comes then."""
    if before is None:
        return
    key, seq = before[0], before[1] + 1
    while seq < known[key].source.attempted_end and known[key].source.is_blank(seq):
        if seq not in known[key].seen:
            yield key, seq
        seq += 1


def _preceding(known: Mapping[SourceKey, Known], after: Place | None) -> Iterator[Place]:
    """Yield the missing empty lines right before *after*, whatever comes before them."""
    if after is None:
        return
    key, seq = after[0], after[1] - 1
    while seq >= 0 and known[key].source.is_blank(seq):
        if seq not in known[key].seen:
            yield key, seq
        seq -= 1


def assign(candidates: Sequence[Sequence[Place]]) -> list[Place | None]:
    """Give each line one of its *candidates* that no other one has, to as many as possible."""
    owners: dict[Place, int] = {}
    for line in range(len(candidates)):
        _augment(candidates, owners, line)
    given: list[Place | None] = [None] * len(candidates)
    for place, line in owners.items():
        given[line] = place
    return given


def _augment(candidates: Sequence[Sequence[Place]], owners: dict[Place, int], line: int) -> None:
    """Find a place for *line*, moving others to other ones of theirs where that makes room."""
    came_from: dict[Place, int] = {}
    waiting = deque([line])
    had: dict[int, Place] = {}
    while waiting:
        current = waiting.popleft()
        for place in candidates[current]:
            if place in came_from:
                continue
            came_from[place] = current
            if place not in owners:
                _move(owners, came_from, had, place)
                return
            had[owners[place]] = place
            waiting.append(owners[place])


def _move(
    owners: dict[Place, int],
    came_from: Mapping[Place, int],
    had: Mapping[int, Place],
    place: Place,
) -> None:
    """Give *place* to the line that found it, whose own place goes to the one before, and so on."""
    step: Place | None = place
    while step is not None:
        line = came_from[step]
        owners[step] = line
        step = had.get(line)
