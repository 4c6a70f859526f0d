"""No order of messages, looks and changes of leader has a partition pass what it did not read."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.settings import is_soak
from logpipeline.records import StreamPosition
from protocol.engine import Broken, search
from protocol.single_stream import Bounds, SingleStream

SMALL = {
    "former-leader": Bounds(messages=2, looks=3),
    "on-its-way": Bounds(messages=2, looks=3, leaders=1, removed=1),
}
WIDE = {
    "former-leader": Bounds(messages=3, looks=3),
    "two-former-leaders": Bounds(messages=2, looks=4, leaders=2),
    "on-its-way": Bounds(messages=2, looks=3, leaders=1, removed=2),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_nothing_is_passed_that_was_not_read(bounds: Bounds, say: Callable[[str], None]) -> None:
    """Each message of ours is taken once, before the position is behind it."""
    say(str(search(SingleStream(bounds))))


def _at_once(self: Any, stream: Any) -> None:
    self.passed = StreamPosition(stream.created, stream.last, stream.last_time_ns)


async def _by_its_own(*_words: Any, **_named: Any) -> bool:
    return False


# Of each broken decision: its place, what replaces it, and the bounds of the search that finds it.
DEFECTS: dict[str, tuple[str, Any, Bounds]] = {
    "one look is enough": (
        "logpipeline_collector.stream_reader.StreamReader._pass",
        _at_once,
        Bounds(messages=2, looks=2),
    ),
    "the consumer knows what there is": (
        "logpipeline_collector.stream_reader.is_unread",
        _by_its_own,
        Bounds(messages=2, looks=2, leaders=0),
    ),
    "what is on its way is here": (
        "logpipeline_collector.stream_reader.Order.delivery",
        property(lambda self: AnyNumber(), lambda self, value: None),
        Bounds(messages=2, looks=3, leaders=0, removed=2),
    ),
}


class AnyNumber(int):
    """Equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize(("place", "broken", "bounds"), DEFECTS.values(), ids=DEFECTS)
def test_the_search_finds_a_broken_decision(
    place: str, broken: Any, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that finds nothing says something only if it looks where a defect would show."""
    owner, _, name = place.rpartition(".")
    monkeypatch.setattr(resolve_name(owner), name, broken, raising=False)

    with pytest.raises(Broken, match="was passed, and never read"):
        search(SingleStream(bounds))
