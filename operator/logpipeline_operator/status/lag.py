"""How far the files are behind, in words that change seldom.

A pipeline that runs steadily has some other lag with each look; the resource would be written with
each look as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logpipeline.survey import PartitionState

UNKNOWN = "unknown"
# Commits come every fraction of a second; below this a pipeline is up to date.
FRESH_S = 10.0
FRESH = "< 10 s"
# A number keeps its word until it is off by so much: else it would flicker at a border.
MARGIN = 1.25

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
    old_size, _, old_age = previous.rpartition(", ")
    age = _kept(age_s, old_age or previous, age_text)
    if age == FRESH:
        return FRESH
    return f"{_kept(size, old_size, bytes_text)}, {age}"


def age_text(age_s: float) -> str:
    """Return about how long *age_s* seconds are: ``30 s``, ``5 min``, ``2 d``."""
    if age_s < FRESH_S:
        return FRESH
    step = max(step for step in _STEPS_S if step <= age_s)
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
