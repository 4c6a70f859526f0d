"""No order of merges, erasures, removed hours and batches loses a message of a table, has one twice
or brings one back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faults.settings import is_soak
from protocol.engine import Broken, search
from protocol.replacing import Bounds, Replacing

SMALL = {
    "two-merges-and-erasure": Bounds(processes=("merge", "merge", "erase")),
    "merge-erasure-and-retention": Bounds(processes=("merge", "erase", "retain")),
    "merge-and-erasure-of-an-hour": Bounds(processes=("merge", "erase"), erased=frozenset({3})),
    "merge-erasure-and-batch": Bounds(processes=("merge", "erase", "write")),
    "asleep-during-a-clean-up": Bounds(processes=("merge", "erase"), sleeps=2),
}
WIDE = {
    "all-at-once": Bounds(processes=("merge", "erase", "retain", "write"), hours=1),
    "two-merges-erasure-and-batch": Bounds(processes=("merge", "merge", "erase", "write"), hours=1),
    "two-erasures": Bounds(processes=("merge", "erase", "erase")),
    "asleep-during-a-clean-up": Bounds(processes=("merge", "merge", "erase"), sleeps=1),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_each_version_holds_what_it_should(bounds: Bounds, say: Callable[[str], None]) -> None:
    """Each version of the log has the messages of the one before, but for those that it adds,
    erases or removes; and names only files that are there.
    """
    say(str(search(Replacing(bounds))))


# Broken decisions: their places, what replaces them, and what the search has to find then.
DEFECTS: dict[str, tuple[str, Any, Bounds, str]] = {
    "the files of a second merge are not looked for again": (
        "logpipeline_spark.formats.delta.DeltaLog._refuse_gone",
        lambda self, change: None,
        Bounds(processes=("merge", "erase"), erased=frozenset({3})),
        r"OPTIMIZE makes \[1, 2, 3, 4\] of \[1, 2, 4\]|is twice in the table",
    ),
    "a process ignores that another one removed its files": (
        "logpipeline_spark.formats.delta.DeltaLog._refuse_conflict",
        lambda self, place, change: None,
        Bounds(processes=("merge", "merge"), hours=1),
        "is twice in the table",
    ),
    "files that waited for hours are committed": (
        "logpipeline_spark.formats.log.Change.refuse_late",
        lambda self: None,
        Bounds(processes=("merge", "merge"), hours=1, sleeps=1),
        "which was removed",
    ),
}


@pytest.mark.parametrize(("place", "broken", "bounds", "why"), DEFECTS.values(), ids=DEFECTS)
def test_the_search_finds_a_broken_decision(
    place: str, broken: Any, bounds: Bounds, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that finds nothing says something only if it looks where a defect would show."""
    monkeypatch.setattr(place, broken)

    with pytest.raises(Broken, match=why):
        search(Replacing(bounds))
