"""In which order the generations of a source follow one another: that in which they were written,
as far as names of files and what was seen before tell it.
"""

from __future__ import annotations

from collections.abc import Sequence

from logpipeline_shipper.files.generation import Generation


def as_before(listed: Sequence[Generation], before: Sequence[Generation]) -> list[Generation]:
    """Return *listed*, in the order of their names, with those that were known *before* in the
    order that they had: a rotator may have given one a name that tells no age.
    """
    place = {id(known): number for number, known in enumerate(before)}
    known = iter(sorted((g for g in listed if id(g) in place), key=lambda g: place[id(g)]))
    return [next(known) if id(each) in place else each for each in listed]


def with_hidden(listed: Sequence[Generation], every: Sequence[Generation]) -> list[Generation]:
    """Return *every* generation in the order of those that are *listed*: one that no listing shows
    stays where it was among the others.
    """
    order = list(listed)
    for index, generation in enumerate(every):
        if generation not in order:
            before = [order.index(each) for each in every[:index] if each in order]
            order.insert(max(before, default=-1) + 1, generation)
    return order
