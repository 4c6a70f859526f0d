"""For how long facts about pipelines have held, where no object of the cluster says since when.

A new operator counts anew: what is decided by such a duration only happens later then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from logpipeline_operator.queue import Key


@dataclass(slots=True)
class Durations:
    """Since when each fact about a pipeline has been seen at each look, by a monotonic *clock*."""

    clock: Callable[[], float] = time.monotonic
    _since: dict[Key, dict[str, float]] = field(default_factory=dict)

    def of(self, key: Key, facts: Iterable[str]) -> dict[str, float]:
        """Return the seconds for which each of *facts*, which are all that hold now, has held."""
        now, former = self.clock(), self._since.get(key, {})
        self._since[key] = {fact: former.get(fact, now) for fact in facts}
        return {fact: now - since for fact, since in self._since[key].items()}

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all pipelines but *keys*."""
        self._since = {key: since for key, since in self._since.items() if key in keys}
