"""Adds up what was found in all chains to one verdict per source.

A source's lines may stand in several collectors' folders, after its partition was handed over. The
names of files say nothing about the order between folders: so the union must be complete and
without copies, and each chain must rise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from logpipeline_demo.expected import Expected, ExpectedSource
from logpipeline_demo.ledger import Intervals
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.matching import Bad, Blanks, ChainFindings, Run
from logpipeline_demo.outputs import Location
from logpipeline_demo.verdict import Kind, Offence, SourceVerdict

Place = tuple[SourceKey, int]


# An empty line carries no number. Where two collectors took turns, an empty line may be one of
# several; it is all well if there is any way to give each one a place of its own.
class Known(Protocol):
    """The expected lines of a source, and those that were found."""

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
    """Assign to as many lines as possible one of their *candidates*, each at most once."""
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


@dataclass(slots=True)
class _Tally:
    """The findings about one source so far."""

    source: ExpectedSource
    verdict: SourceVerdict
    is_late_allowed: bool
    seen: Intervals = field(default_factory=Intervals)
    corrupt: Intervals = field(default_factory=Intervals)
    ends: dict[int, Location] = field(default_factory=dict)  # where the line before is

    def tell(self, kind: Kind, first: int, end: int, at: Location | None, note: str = "") -> None:
        self.verdict.tell(Offence(kind, self.source.key, first, end, at, note))


def settle(
    expected: Expected, found: Sequence[ChainFindings], *, allow_late: Collection[SourceKey]
) -> list[SourceVerdict]:
    """Return a verdict for each source, and one for lines that belong to none."""
    unattributed = SourceVerdict(None)
    tallies = {
        key: _Tally(source, SourceVerdict(key, expected=source.written_end), key in allow_late)
        for key, source in expected.sources.items()
    }
    for findings in found:
        for key, runs in findings.runs.items():
            _count_runs(tallies[key], runs)
        for bad in findings.corrupt:
            _count_corrupt(tallies, bad)
        for bad in findings.invented:
            tally = tallies.get(bad.key) if bad.key else None
            _count_invented(tally.verdict if tally else unattributed, bad)
    _place_blanks(
        tallies, [blanks for findings in found for blanks in findings.blanks], unattributed
    )
    for tally in tallies.values():
        _count_lost(tally)
    return [*(tally.verdict for tally in tallies.values()), unattributed]


def _count_runs(tally: _Tally, runs: Iterable[Run]) -> None:
    highest = -1
    for run in runs:
        known = tally.seen.add(run.first, run.end)
        for first, end in known:
            tally.verdict.twice += end - first
            tally.tell(Kind.TWICE, first, end, run.start_at, _run_note(run))
        if run.first <= highest:
            stop = min(run.end, highest + 1)
            for first, end in Intervals(known).missing(run.first, stop):
                _count_out_of_order(tally, first, end, run, highest)
        highest = max(highest, run.end - 1)
        tally.ends[run.end] = run.end_at


def _count_out_of_order(tally: _Tally, first: int, end: int, run: Run, highest: int) -> None:
    kind = Kind.LATE if tally.is_late_allowed else Kind.OUT_OF_ORDER
    if tally.is_late_allowed:
        tally.verdict.late += end - first
    else:
        tally.verdict.out_of_order += end - first
    tally.tell(kind, first, end, run.start_at, f"after line {highest}; {_run_note(run)}")


def _run_note(run: Run) -> str:
    return f"in the run {run.first}..{run.end - 1} that begins there"


def _count_corrupt(tallies: dict[SourceKey, _Tally], bad: Bad) -> None:
    assert bad.key is not None
    assert bad.seq is not None
    tally = tallies[bad.key]
    tally.verdict.corrupt += 1
    tally.corrupt.add(bad.seq, bad.seq + 1)
    tally.tell(Kind.CORRUPT, bad.seq, bad.seq + 1, bad.at, bad.note)


def _count_invented(verdict: SourceVerdict, bad: Bad) -> None:
    verdict.invented += 1
    end = None if bad.seq is None else bad.seq + 1
    verdict.tell(Offence(Kind.INVENTED, bad.key, bad.seq, end, bad.at, bad.note))


def _place_blanks(
    tallies: dict[SourceKey, _Tally], found: Sequence[Blanks], unattributed: SourceVerdict
) -> None:
    """Give each empty line to an empty line that is missing where it stands."""
    places: list[Location] = []
    candidates: list[list[tuple[SourceKey, int]]] = []
    for blanks in found:
        places += blanks.places
        candidates += [candidates_of(tallies, blanks)] * len(blanks.places)
    for at, given in zip(places, assign(candidates), strict=True):
        if given is None:
            _count_invented(unattributed, Bad(None, None, at, "an empty line of no source"))
        else:
            key, seq = given
            tallies[key].seen.add(seq, seq + 1)


def _count_lost(tally: _Tally) -> None:
    source, verdict, seen = tally.source, tally.verdict, tally.seen
    verdict.arrived = sum(end - first for first, end in seen.within(0, source.written_end))
    verdict.recovered = len(seen) - verdict.arrived
    lost = Intervals(seen.missing(0, source.written_end)).minus(tally.corrupt)
    for first, end in lost:
        verdict.lost_removed += sum(b - a for a, b in source.removed.within(first, end))
        if not seen or first >= seen.end:
            where = "tail"
            verdict.lost_tail += end - first
        elif end <= seen.first:
            where = "prefix"
            verdict.lost_prefix += end - first
        else:
            where = "middle"
            verdict.lost_middle += end - first
        at = tally.ends.get(first)
        tally.tell(Kind.LOST, first, end, at, f"{where}; the place is the end of the line before")
