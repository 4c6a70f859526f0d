"""Rates of counters, and ages of waiting bytes, from successive observations. No clock: the time of
each observation is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

# Rates that are kept of each counter, for its sparkline: one minute at one observation a second.
HISTORY_MAX = 60
# The shown rate is the mean of so many: batches and commits make single ones jump.
MEAN_OF = 3
# A counter that was not observed for so long is forgotten.
FORGET_S = 300.0
# Totals that are kept to find when a byte was written; beyond them the shipper's own word counts.
TOTALS_MAX = 60
_BARS = "▁▂▃▄▅▆▇█"


def rise(before: float, now: float, *, may_fall: bool) -> float:
    """Return by how much a counter rose. One that fell began anew at 0, but for one that *may
    fall*: that did not rise.
    """
    if now >= before:
        return now - before
    return 0.0 if may_fall else now


@dataclass(slots=True)
class Series:
    """The rates of one counter, per second."""

    at_s: float
    value: float
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))

    @property
    def rate(self) -> float:
        """The rate now; 0.0 before the second observation."""
        last = list(self.rates)[-MEAN_OF:]
        return sum(last) / len(last) if last else 0.0

    def observe(self, at_s: float, value: float, *, may_fall: bool = False) -> None:
        """Take the *value* of the counter at *at_s*; see `rise`."""
        span_s = at_s - self.at_s
        if span_s <= 0:
            return
        self.rates.append(rise(self.value, value, may_fall=may_fall) / span_s)
        self.at_s, self.value = at_s, value


class Counters:
    """The series of many counters, by key."""

    def __init__(self) -> None:
        self._series: dict[Hashable, Series] = {}

    def observe(
        self, key: Hashable, at_s: float, value: float, *, may_fall: bool = False
    ) -> Series:
        """Take the *value* of the counter *key* at *at_s*, and return its series."""
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Series(at_s, value)
        else:
            found.observe(at_s, value, may_fall=may_fall)
        return found

    def last(self, key: Hashable) -> Series:
        """Return the series of the counter *key* as it was taken last; an empty one before that."""
        return self._series.get(key) or Series(0.0, 0.0)

    def forget(self, at_s: float) -> None:
        """Forget counters that were not observed for `FORGET_S`."""
        old = [key for key, each in self._series.items() if at_s - each.at_s > FORGET_S]
        for key in old:
            del self._series[key]


@dataclass(slots=True)
class Written:
    """When the bytes of a growing total were written, as far as observations show it."""

    totals: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=TOTALS_MAX))

    def age_s(self, at_s: float, *, done: int, waiting: int) -> float | None:
        """Take that at *at_s* the first *done* bytes were shipped and *waiting* were not; return
        how long the oldest of those can have waited, None where no observation shows it.
        """
        total = done + waiting
        if self.totals and total < self.totals[-1][1]:
            self.totals.clear()  # its shipper began anew to count
        if not self.totals or self.totals[-1][0] != at_s:
            self.totals.append((at_s, total))
        if not waiting:
            return 0.0
        # The oldest waiting byte was written after the last moment when no more were there.
        before = [when_s for when_s, written in self.totals if written <= done]
        return at_s - before[-1] if before else None


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last *width* of *values* as bars, the largest being full; blanks on the left
    where there are fewer.
    """
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    bars = "".join(
        _BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] if value > 0 else " "
        for value in shown
    )
    return bars.rjust(width)
