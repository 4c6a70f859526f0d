"""How far the files are behind, in words that change seldom.

A pipeline that runs steadily has some other lag with each look; the resource would be written with
each look as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from logpipeline.survey import PartitionState

UNKNOWN = "unknown"
NOTHING = "nothing"
# Commits come every fraction of a second; below this a pipeline is up to date.
FRESH_S = 10.0
# A number keeps its word until it is off by so much: else it would flicker at a border.
MARGIN = 1.25
# One round may begin just before a line comes, and the next one takes its time.
ROUNDS_FRESH = 3

_UNITS_S = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_STEPS_S = (
    10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200,
    86_400, 172_800, 345_600, 604_800, 1_209_600, 2_592_000,
)  # fmt: skip
_UNITS_BYTES = ("KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def lag_text(partitions: Sequence[PartitionState], previous: str = "") -> str:
    """Return the lag of *partitions*; that of the *previous* status where it still fits."""
    if not partitions:
        return UNKNOWN
    age_s = max(state.lag_s for state in partitions)
    size = sum(state.lag_bytes for state in partitions)
    return words(age_s, size, previous)


def size_text(size: int) -> str:
    """Return about how much *size* bytes are, ``nothing`` included."""
    return bytes_text(size) if size else NOTHING


def words(age_s: float, size: float, previous: str = "", *, fresh_s: float = FRESH_S) -> str:
    """Return a lag of *age_s* seconds and *size* bytes, the *previous* words where they still fit;
    below *fresh_s* it is none.
    """
    old_size, _, old_age = previous.rpartition(", ")
    age = _kept(age_s, old_age or previous, partial(age_text, fresh_s=fresh_s))
    if age == fresh_text(fresh_s):
        return age
    return f"{_kept(size, old_size, bytes_text)}, {age}"


def age_text(age_s: float, *, fresh_s: float = FRESH_S) -> str:
    """Return about how long *age_s* seconds are: ``30 s``, ``5 min``, ``2 d``."""
    return fresh_text(fresh_s) if age_s < fresh_s else _span(age_s)


def fresh_text(fresh_s: float) -> str:
    """Return what is said of a lag below *fresh_s*: ``< 10 s``."""
    return f"< {_span(fresh_s)}"


def fresh_from(interval_s: float) -> float:
    """Return the limit below which who works every *interval_s* is up to date."""
    wanted = max(ROUNDS_FRESH * interval_s, FRESH_S)
    return next((step for step in _STEPS_S if step >= wanted), _STEPS_S[-1])


def _span(span_s: float) -> str:
    step = max((step for step in _STEPS_S if step <= span_s), default=_STEPS_S[0])
    size, unit = next((size, unit) for size, unit in _UNITS_S if step >= size)
    return f"{step // size} {unit}"


def bytes_text(size: float) -> str:
    """Return about how much *size* bytes are: ``20 MiB``."""
    number, units = size / 1024, iter(_UNITS_BYTES)
    unit = next(units)
    for larger in units:
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{max((step for step in _STEPS if step <= number), default=1)} {unit}"


def _kept(value: float, previous: str, text: Callable[[float], str]) -> str:
    words = [text(each) for each in (value, value / MARGIN, value * MARGIN)]
    return previous if previous in words else words[0]
