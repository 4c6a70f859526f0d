"""What a table covers of its streams, and what it says of the rest, within a bounded state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logpipeline_spark.table.files import Range
from logpipeline_spark.table.state import LOSSES_LISTED_MAX, Cover

STREAM, LIFE = "LOGS_0", "18a1f3c2d4e5f607r0"


def lost(cover: Cover) -> int:
    """How many messages are named or counted as lost."""
    named = sum(gone.last - gone.first + 1 for _, gone in cover.missing())
    return named + sum(cover.unlisted.values())


@pytest.mark.parametrize("kind", ["skipped", "within"])
def test_a_table_that_always_loses_messages_has_a_state_of_bounded_size(kind: str) -> None:
    """The newest losses are named, older ones are counted; rows of all batches are covered."""
    cover, size = Cover(), 0
    for number in range(10_000):
        first = 100 * number + 1
        found = Range(LIFE, first + 10 * (kind == "skipped"), first + 99)
        within = {} if kind == "skipped" else {STREAM: [Range(LIFE, first + 5, first + 14)]}
        cover = cover.after({STREAM: found}, skipped=frozenset([STREAM]), lost=within)
        size = max(size, len(json.dumps(cover.to_data())))
    again = Cover.from_data(json.loads(json.dumps(cover.to_data())))

    newest = [gone for _, gone in again.missing()]
    assert size < 50 * LOSSES_LISTED_MAX + 300
    assert lost(again) == 10 * (10_000 - (kind == "skipped"))
    assert len(newest) == LOSSES_LISTED_MAX
    assert newest[-1].first > 999_000
    ranges = again.read[STREAM]
    assert (ranges[0].last - ranges[0].first, ranges[-1].last) == pytest.approx(
        (100 * (10_000 - len(ranges)), 1_000_000), abs=100
    )


def test_losses_that_adjoin_are_one() -> None:
    """As where a purge goes on while batches read."""
    cover = Cover()
    for first in (1, 11, 21):
        lost_now = {STREAM: [Range(LIFE, first, first + 9)]}
        cover = cover.after({STREAM: Range(LIFE, first, first + 9)}, lost=lost_now)

    assert list(cover.missing()) == [(STREAM, Range(LIFE, 1, 30))]


def test_each_life_of_a_stream_stays_covered() -> None:
    """Rows of all lives are compared with their ranges."""
    cover = Cover()
    for life in range(3 * LOSSES_LISTED_MAX):
        for first in (1, 21):
            found = {STREAM: Range(f"1r{life}", first, first + 9)}
            cover = cover.after(found, skipped=frozenset([STREAM]))

    assert len({each.incarnation for each in cover.read[STREAM]}) == 3 * LOSSES_LISTED_MAX
    assert len(list(cover.missing())) == LOSSES_LISTED_MAX
    assert lost(cover) == 10 * 3 * LOSSES_LISTED_MAX


def test_the_cover_of_a_former_version_counts_nothing_unlisted() -> None:
    """It listed all."""
    data: Any = {"read": {STREAM: [[LIFE, 1, 9]]}, "lost": {}}

    assert Cover.from_data(data) == Cover({STREAM: (Range(LIFE, 1, 9),)})
