"""No order of take-overs, freezes and lost answers gives a group's message to two batches."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.settings import is_soak
from logpipeline.consuming.records import NEXT_ALONE, ReadProgress
from protocol.claims import Bounds, Group
from protocol.engine import Broken, search

SMALL = {
    "two-members": Bounds(messages=2, batch=1),
    "two-members-batches": Bounds(messages=2, batch=2),
}
WIDE = {
    "two-members": Bounds(messages=3, batch=1, unknown=2),
    "two-members-batches": Bounds(messages=3, batch=2),
    "three-members": Bounds(members=3, messages=1, batch=1, unknown=0),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_each_message_belongs_to_one_batch(bounds: Bounds, say: Callable[[str], None]) -> None:
    """A message that is handled again comes in the same batch, and none is passed over; what
    counts as processed was handled. So it is for a member that freezes anywhere, and wakes.
    """
    say(str(search(Group(bounds))))


def _not_noted(self: Any, batch: Any) -> Any:
    async def begin() -> None:
        return

    return begin()


def _without_working(position: Any, working: int = 0, begun: int = 0) -> ReadProgress:
    return ReadProgress(position, NEXT_ALONE if working == NEXT_ALONE else 0)


def _unfenced(swap: Callable[..., Any]) -> Callable[..., Any]:
    async def write(self: Any, wanted: Any) -> bool:
        entry = await self._bucket.get(self._key)
        self._revision = entry.revision if entry is not None else 0
        return bool(await swap(self, wanted))

    return write


# Broken decisions: their places, what is made of them, and what the search has to find then.
DEFECTS: dict[str, tuple[str, Callable[[Any], Any], Bounds, str]] = {
    "a batch that begins is not noted": (
        "logpipeline.consuming.ordered.OrderedReader.begin",
        lambda _: _not_noted,
        Bounds(messages=2, batch=2, unknown=0),
        "in two batches of other names|handled a batch twice|passed over",
    ),
    "the batch of a dead member is not handed out again": (
        "logpipeline.consuming.ordered.ReadProgress",
        lambda _: _without_working,
        Bounds(messages=2, batch=2, unknown=0),
        "in two batches of other names|passed over",
    ),
    "a fenced member writes on": (
        "logpipeline.group.ownership.HeldRecord._write",
        _unfenced,
        Bounds(messages=2, batch=1, unknown=0),
        "went on after another|handled a batch twice",
    ),
    "a record of another process is ours": (
        "logpipeline.group.ownership.HeldRecord._is_ours",
        lambda _: lambda self, found: found is not None,
        Bounds(messages=2, batch=1, unknown=0),
        "went on after another|handled a batch twice",
    ),
    "a position moves before the work": (
        "logpipeline.consuming.ordered.OrderedReader.begin",
        lambda _: lambda self, batch: self._advance(batch.deliveries),
        Bounds(messages=2, batch=1, unknown=0),
        "counts as processed",
    ),
}


@pytest.mark.parametrize(("place", "broken", "bounds", "why"), DEFECTS.values(), ids=DEFECTS)
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
        search(Group(bounds))
