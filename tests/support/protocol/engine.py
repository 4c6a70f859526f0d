"""A breadth-first search of all states of a model. A model's decisions are the product's own
functions; its states are values, so that each state is looked at once.

A state in which a promise does not hold ends the search with the shortest way to it, as a story.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
# A search that finds more states than its bounds are meant to have would take all memory.
STATES_MAX = 3_000_000


class Model(Protocol[S]):
    """What a search needs of a model."""

    def first(self) -> S:
        """Return the state in which everything begins."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Yield each step that may follow *state*: a sentence, and the state after it."""

    def wrong(self, state: S) -> str:
        """Return which promise does not hold in *state*; empty where all hold."""


class Broken(AssertionError):
    """A promise does not hold: *why*, and the *story* that leads there, a sentence a step."""

    def __init__(self, why: str, story: list[str]) -> None:
        self.why = why
        self.story = story
        lines = [f"{why}, after {len(story)} steps:"]
        lines += [f"{number:4}. {step}" for number, step in enumerate(story, start=1)]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Searched(Generic[S]):
    """The result of a search without a broken promise: numbers of *states* and of *steps* between
    them, the *depth* of the state that is farthest from the first, and the *seconds* it took.
    """

    states: int
    steps: int
    depth: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}, "
            f"{self.seconds:.1f} s"
        )


def search(model: Model[S], *, states_max: int = STATES_MAX) -> Searched[S]:
    """Look at all states of *model*.

    Raises:
        Broken: a promise does not hold in one, or the product's code fails in a step.
        OverflowError: there are more than *states_max* states: the bounds are too wide.
    """
    began_s = time.monotonic()
    first = model.first()
    ways: dict[S, tuple[S, str] | None] = {first: None}
    waiting: deque[tuple[S, int]] = deque([(first, 0)])
    steps = depth = 0
    while waiting:
        state, depth = waiting.popleft()
        if why := model.wrong(state):
            raise Broken(why, _story(state, ways))
        try:
            for name, following in model.steps(state):
                steps += 1
                known = len(ways)
                # To hash a state takes longer than all else here, so it is done once.
                ways.setdefault(following, (state, name))
                if len(ways) > known:
                    waiting.append((following, depth + 1))
        except Exception as error:
            why = f"the product's code fails ({type(error).__name__}: {error})"
            raise Broken(why, _story(state, ways)) from error
        if len(ways) > states_max:
            raise OverflowError(f"more than {states_max:,} states: choose narrower bounds")
    return Searched(len(ways), steps, depth, time.monotonic() - began_s)


def _story(state: S, ways: dict[S, tuple[S, str] | None]) -> list[str]:
    names = []
    while (step := ways[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]
