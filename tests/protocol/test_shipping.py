"""No order of sendings, losses and restarts archives a byte twice, or loses one without a name."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

from faults.settings import is_soak
from logpipeline.extents import Taken
from protocol.engine import Broken, search
from protocol.shipping_world import Bounds
from protocol.source_shipping import Shipping

SMALL = {
    "acknowledgements-lost": Bounds(lost_acks=2, windows=1, delays=1),
    "killed": Bounds(kills=1, lost_acks=1, windows=1, answers=1, repairs=1),
    "killed-twice": Bounds(kills=2, answers=1, repairs=1),
    "tail-lost": Bounds(tails=1, answers=2),
    "messages-deleted": Bounds(purges=1, late_answers=1),
    "power-cut": Bounds(power_cuts=1, answers=1, repairs=1),
    "positions-lost": Bounds(lost_positions=1, lost_acks=1, windows=1, answers=1, repairs=1),
    "rotated-away": Bounds(lines=1, rotates=True, purges=1),
}
WIDE = {
    "acknowledgements-lost": Bounds(lines=3, lost_acks=2, windows=1, delays=1),
    "killed": Bounds(kills=1, lost_acks=1, windows=1, answers=2),
    "killed-twice": Bounds(kills=2, lost_acks=1, answers=1, repairs=1),
    "killed-with-a-message-delayed": Bounds(kills=1, lost_acks=1, delays=1, answers=1, repairs=1),
    "tail-lost": Bounds(lines=3, tails=1, answers=2),
    "tail-lost-and-killed": Bounds(tails=1, kills=1, answers=2, repairs=2),
    "messages-deleted": Bounds(lines=3, purges=2, late_answers=1),
    "power-cut": Bounds(power_cuts=1, lost_acks=1, windows=1, answers=2),
    "positions-lost": Bounds(lost_positions=1, lost_acks=1, windows=1, purges=1, answers=2),
    "rotated-away": Bounds(lines=2, rotates=True, purges=1, lost_acks=1),
}
SEARCHED = WIDE if is_soak() else SMALL


@pytest.mark.parametrize("bounds", SEARCHED.values(), ids=SEARCHED)
def test_each_byte_is_archived_once_or_named(bounds: Bounds, say: Callable[[str], None]) -> None:
    """A line is archived once at most; the shipper holds nothing for collected that is not; and
    where nothing is left to do, each line is archived or named as lost, and the books are closed.
    """
    say(str(search(Shipping(bounds))))


def _all_new(take: Callable[..., Taken | None]) -> Callable[..., Taken | None]:
    def taken(known: Any, batch: Any, **how: Any) -> Taken | None:
        found = take(known, batch, **how)
        return found and found._replace(new=((batch.start, batch.end),))

    return taken


# Broken decisions: their places, what is made of them, and what the search has to find then.
DEFECTS: dict[str, tuple[str, Callable[[Any], Any], Bounds, str]] = {
    "all bytes of a batch are new": (
        "logpipeline.deduplication.take",
        _all_new,
        Bounds(lost_acks=1, windows=1),
        "written twice",
    ),
    "everything below a report's offset is confirmed": (
        "logpipeline_shipper.account.Confirmed.has",
        lambda _: lambda self, span: span[1] <= self.offset,
        Bounds(purges=1),
        "counts as collected",
    ),
    "a group has read nothing yet": (
        "logpipeline_shipper.account._was_read",
        lambda _: lambda *_: False,
        Bounds(purges=1),
        "is neither collected|never close",
    ),
    "a report names no holes": (
        "logpipeline.deduplication._committed",
        lambda committed: lambda source, known, holes: committed(source, known, ()),
        Bounds(purges=1),
        "counts as collected",
    ),
    "no loss is named": (
        "logpipeline_shipper.account.Account.lose",
        lambda _: lambda self, gap: self.pay(gap.generation, (gap.start, gap.end)),
        Bounds(lines=1, rotates=True),
        "counts as collected|is neither collected",
    ),
    "holes are not recalled": (
        "logpipeline_shipper.account.Account.recall",
        lambda _: lambda self, known, now_s: None,
        Bounds(lost_positions=1, purges=1, answers=1, repairs=1),
        "counts as collected|is neither collected",
    ),
    "what may have been sent before is not marked": (
        "logpipeline_shipper.resend.EarlierSends.pieces",
        lambda pieces: (
            lambda *chunk: [each._replace(resend=False, is_unsure=False) for each in pieces(*chunk)]
        ),
        Bounds(kills=1, lost_acks=1, windows=1, answers=1, repairs=1),
        "written twice|fails",
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
        search(Shipping(bounds))
