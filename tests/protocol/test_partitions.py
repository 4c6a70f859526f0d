"""No order of steps of the commit protocol writes a line into two folders, or into none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.settings import is_soak
from logpipeline.records import EpochRecord, Reached
from logpipeline.streamstate import Verdict
from logpipeline_collector.recovery import Recovery, Source
from protocol.engine import Broken, search
from protocol.partition_world import Bounds
from protocol.partitions import Partitions

# What each search looks at: small ones in each run, and wider ones in `make soak`.
SMALL = {
    "two-owners": Bounds(epochs=3, snapshots=1, repeats=1),
    "lost-tail": Bounds(epochs=2, tails=1, snapshots=1),
    "lost-tail-foreign-lines": Bounds(epochs=3, tails=1, are_foreign=True),
    "stream-made-anew": Bounds(epochs=2, recreations=1, snapshots=1),
    "lost-snapshots": Bounds(epochs=2, snapshots=1, repeats=1, lost_snapshots=1),
    "lost-bucket": Bounds(epochs=2, snapshots=1, lost_buckets=1),
    "lost-bucket-epochs": Bounds(epochs=2, lines=2, lost_buckets=1),
    "empty-volume": Bounds(epochs=3, emptied=1, snapshots=1),
    "trimmed": Bounds(epochs=2, lines=2, trims=1, snapshots=1, repeats=1),
}
WIDE = {
    "two-owners": Bounds(collectors=3, epochs=3, snapshots=1, repeats=1),
    "lost-tail": Bounds(epochs=2, tails=1, snapshots=1, repeats=1),
    "lost-tail-two-lines": Bounds(lines=2, epochs=2, tails=1, snapshots=1),
    "lost-tail-thrice-owned": Bounds(epochs=3, tails=1, snapshots=1),
    "lost-tail-foreign-lines": Bounds(lines=2, epochs=3, tails=2, are_foreign=True),
    "stream-made-anew": Bounds(epochs=3, recreations=1, snapshots=1),
    "lost-snapshots": Bounds(epochs=3, snapshots=1, repeats=1, lost_snapshots=1),
    "lost-bucket": Bounds(epochs=3, snapshots=2, lost_buckets=1),
    "lost-bucket-epochs": Bounds(epochs=3, lines=2, lost_buckets=1),
    "lost-bucket-and-stream": Bounds(epochs=2, snapshots=1, lost_buckets=1, recreations=1),
    "empty-volume": Bounds(lines=2, epochs=3, emptied=1, snapshots=1),
    "trimmed": Bounds(epochs=3, lines=2, trims=1, snapshots=1, repeats=1),
    "trimmed-behind-a-roll-back": Bounds(lines=2, epochs=2, trims=1, tails=1, snapshots=1),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_each_line_is_written_once_and_stays(bounds: Bounds, say: Callable[[str], None]) -> None:
    """Whatever the order of reads, commits, swaps, take-overs, kills and faults: a line stands in
    one folder, one that was committed stays, and none that the stream holds is passed over.
    """
    say(str(search(Partitions(bounds))))


def _without_succession(found: Callable[..., EpochRecord]) -> Callable[..., EpochRecord]:
    return lambda *args, **kwargs: replace(found(*args, **kwargs), succession=None)


def _by_sequence(mine: Reached, other: Reached) -> bool:
    return mine.position.sequence < other.position.sequence


def _nothing_at_zero(follow: Callable[..., Any]) -> Callable[..., Any]:
    def by_sequence(record: EpochRecord, *args: Any) -> Recovery:
        found: Recovery = follow(record, *args)
        return found if record.position.sequence else replace(found, source=Source.NOTHING)

    return by_sequence


def _without_member(recover: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: recover(*args, **{**kwargs, "member": ""})


# Broken decisions, and what the search has to find then. *of* is the decision's place, *broken* is
# made of the decision itself.
DEFECTS: dict[str, tuple[str, Callable[[Any], Any], Bounds, str]] = {
    "an epoch's start is a sequence alone": (
        "logpipeline_collector.epochs.succeed",
        _without_succession,
        Bounds(lines=2, tails=1, epochs=2),
        "stands in two folders",
    ),
    "two commits are ordered by sequence alone": (
        "logpipeline.records.Reached.is_before",
        lambda _: _by_sequence,
        Bounds(lines=2, tails=1, epochs=2),
        "stands in two folders",
    ),
    "a commit behind the successor's begin stays": (
        "logpipeline_collector.recovery.is_late",
        lambda _: lambda folder, end: False,
        Bounds(),
        "stands in two folders",
    ),
    "each commit is taken back": (
        "logpipeline_collector.recovery.is_late",
        lambda _: lambda folder, end: folder.previous is not None,
        Bounds(),
        "was committed, and stands in no folder",
    ),
    "sources are forgotten at position 0": (
        "logpipeline_collector.recovery._follow",
        _nothing_at_zero,
        Bounds(tails=1, snapshots=1, repeats=1, epochs=2),
        "stands in two folders",
    ),
    "an empty folder is taken for a new one": (
        "logpipeline_collector.recovery.recover",
        _without_member,
        Bounds(emptied=1),
        "was committed, and stands in no folder",
    ),
    "every position is good": (
        "logpipeline.streamstate.judge",
        lambda _: lambda *_: Verdict.GOOD,
        Bounds(lines=2, tails=1, epochs=1),
        "passed over",
    ),
    "what was read again is committed at once": (
        "logpipeline_collector.stream_position.Verified.is_settled",
        lambda _: lambda *_, **__: True,
        Bounds(lines=2, tails=1, epochs=2, are_foreign=True),
        "stands in two folders",
    ),
    "what was read before a roll-back is new": (
        "logpipeline_collector.stream_position.Verified.is_known",
        lambda _: lambda *_: False,
        Bounds(lines=2, tails=1, epochs=2),
        "stands in two folders",
    ),
    "headers behind the snapshot are not read": (
        "logpipeline_collector.takeover.is_behind",
        lambda _: lambda start, position: False,
        Bounds(repeats=1, epochs=2),
        "stands in two folders",
    ),
    "the higher epoch counts, though epochs count anew": (
        "logpipeline_collector.recovery.is_overtaken",
        lambda _: lambda folder, record: False,
        Bounds(lines=2, epochs=2, lost_buckets=1),
        "stands in two folders",
    ),
    "of two folders with one epoch both keep all": (
        "logpipeline_collector.epochs.end_of",
        lambda _: lambda former, successor: successor.reached,
        Bounds(lines=2, epochs=2, lost_buckets=1),
        "stands in two folders",
    ),
    "trimming goes up to the position": (
        "logpipeline.plan.trim.group_floor",
        lambda _: lambda record, **_: record.position.sequence,
        Bounds(lines=1, trims=1, repeats=1, epochs=2),
        "stands in two folders",
    ),
}

# Those that only wider bounds show, after minutes.
DEFECTS_WIDE: dict[str, tuple[str, Callable[[Any], Any], Bounds, str]] = {
    "roll-backs order what owners of different buckets reached": (
        "logpipeline.records.Reached.is_older",
        lambda _: Reached.is_before,
        Bounds(lines=2, epochs=2, lost_buckets=1, recreations=1),
        "stands in two folders",
    ),
}
PLANTED = DEFECTS | (DEFECTS_WIDE if is_soak() else {})


@pytest.mark.parametrize(("place", "broken", "bounds", "why"), PLANTED.values(), ids=PLANTED)
def test_the_search_finds_a_broken_decision(
    place: str,
    broken: Callable[[Any], Any],
    bounds: Bounds,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that finds nothing says something only if it looks where a defect would show."""
    monkeypatch.setattr(place, broken(resolve_name(place)))

    with pytest.raises(Broken, match=why):
        search(Partitions(bounds))
