"""No order of batches, take-overs and clean-ups puts a message into a table twice, or into none."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.settings import is_soak
from logpipeline_spark.table.files import LINES
from logpipeline_spark.table.state import States
from protocol.engine import Broken, search
from protocol.tables import Bounds, Table

SMALL = {
    "two-writers": Bounds(),
    "two-writers-two-batches": Bounds(batches=2, messages=2),
    "asleep-during-a-clean-up": Bounds(sleeps=1),
    "stream-made-anew": Bounds(lives=2),
}
WIDE = {
    "two-writers-three-batches": Bounds(batches=3, messages=3),
    "asleep-during-a-clean-up": Bounds(batches=2, messages=2, sleeps=1),
    "stream-made-anew": Bounds(batches=2, messages=2, lives=2),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_each_message_is_in_the_table_once(bounds: Bounds, say: Callable[[str], None]) -> None:
    """Whenever a writer freezes, dies, or is succeeded: the log names each message once and in
    order, only files that are there, and the state says what they hold.
    """
    say(str(search(Table(bounds))))


def _newest_state(storage: Any, logs: Any) -> Any:
    logs[LINES].transaction()
    states = States(storage)
    return states.load(states.newest())


# Broken decisions: their places, what is made of them, and what the search has to find then.
DEFECTS: dict[str, tuple[str, Callable[[Any], Any], Bounds, str]] = {
    "a batch follows whatever another writer committed": (
        "logpipeline_spark.formats.delta.DeltaLog._refuse_overtaking",
        lambda _: lambda self, action, *, is_first: None,
        Bounds(),
        "is twice in the table|behind its successor",
    ),
    "files that waited for hours are committed": (
        "logpipeline_spark.formats.log.is_late",
        lambda _: lambda since: False,
        Bounds(sleeps=1),
        "which was removed",
    ),
    "the newest state counts, committed or not": (
        "logpipeline_spark.table.writer.last_state",
        lambda _: _newest_state,
        Bounds(),
        "was passed over|the state says|fails",
    ),
    "a batch may leave out what lies before it": (
        "logpipeline_spark.table.state.Cover.end_of",
        lambda _: lambda self, stream: None,
        Bounds(batches=2, messages=2),
        "fails .*WrongRange",
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
        search(Table(bounds))
