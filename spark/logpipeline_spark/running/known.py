"""Decides which of the marked messages of a batch bring new bytes, by the collectors' own rule.

Pure: the same messages lead to the same knowledge, however a batch was cut into tasks.
"""

from __future__ import annotations

from typing import NamedTuple

from logpipeline.deduplication import NOTHING, Range, SourceState, decide
from logpipeline_spark.lines.opening import Seen

# As many as a collector knows; those that were silent the longest are forgotten first.
SOURCES_MAX = 250_000

SourceName = tuple[str, str]
Known = dict[SourceName, SourceState]


class Wanted(NamedTuple):
    """A marked message of which these *ranges* of bytes are new."""

    sequence: int
    ranges: tuple[Range, ...]


class Learned(NamedTuple):
    """What a batch taught of one stream: marked messages that are *wanted*, the sources that
    *changed* or were forgotten, and, to be looked at by people, bytes that came twice *unmarked*,
    and bytes that are *missing*.
    """

    wanted: tuple[Wanted, ...]
    changed: tuple[SourceName, ...]
    unmarked_bytes: int
    missing_bytes: int


def learn(known: Known, seen: Seen) -> Learned:
    """Bring *known* up to date with what was *seen* of a range of one stream.

    *known* is changed in place; the source that changed last stands last in it.
    """
    wanted: list[Wanted] = []
    changed: dict[SourceName, None] = {}
    unmarked = missing = 0
    runs = [(run, False) for run in seen.runs] + [(run, True) for run in seen.marked]
    for run, is_marked in sorted(runs, key=lambda pair: pair[0].first):
        name = (run.host, run.source)
        before = known.pop(name, NOTHING)
        # Those that changed last stand last, here as well.
        changed.pop(name, None)
        changed[name] = None
        decision = decide(before, run.batch)
        known[name] = decision.after
        missing += decision.after.missing - before.missing
        new = sum(part.end - part.start for part in decision.ranges)
        if not is_marked:
            unmarked += run.end - run.start - new
        elif decision.ranges:
            wanted.append(Wanted(run.first, decision.ranges))
    while len(known) > SOURCES_MAX:
        forgotten = next(iter(known))
        del known[forgotten]
        changed[forgotten] = None
    return Learned(tuple(wanted), tuple(changed), unmarked, missing)
