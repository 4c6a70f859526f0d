"""Which step is started next. Nothing here starts one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiers.steps import Step


def startable(
    waiting: Sequence[Step], running: Collection[Step], ended: Collection[str], *, room: float
) -> list[Step]:
    """Return those of *waiting* that can start now, in their order, within *room* processors.

    A step that is larger than the room runs alone. What runs in the background begins at once, and
    takes no room unless it is urgent: it gets what the others leave. A step that waits for urgent
    ones alone has its room kept.
    """
    chosen: list[Step] = []
    taken = [step for step in running if step.takes_room]
    kept = 0.0
    for step in waiting:
        lacking = set(step.after) - set(ended)
        if lacking:
            urgent = [other for other in running if other.name in lacking and other.is_urgent]
            if len(urgent) == len(lacking):
                kept = max(kept, step.load - sum(other.load for other in urgent))
            continue
        load = sum(other.load for other in taken) + kept
        if step.is_background or not taken or load + step.load <= room:
            chosen.append(step)
            if step.takes_room:
                taken.append(step)
    return chosen


def unknown_names(steps: Sequence[Step]) -> set[str]:
    """Return the names that steps wait for and that no step before them has."""
    known: set[str] = set()
    unknown: set[str] = set()
    for step in steps:
        unknown |= set(step.after) - known
        known.add(step.name)
    return unknown
