"""Tells which logins were refused since it was last told: seldom, all of them together, however
many there are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from logpipeline_operator.callout.tokens import Cause, Refusals
from logpipeline_operator.queue import Key

# A stranger who tries again and again is told of as often as a person wants to hear it.
TOLD_EVERY_S = 600.0


@dataclass(slots=True)
class Logins:
    """What was told of each pipeline's refused logins; *clock* is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _counted: dict[Key, dict[tuple[str, Cause], int]] = field(default_factory=dict)
    _told_s: dict[Key, float] = field(default_factory=dict)

    def news(self, key: Key, found: Iterable[Refusals]) -> str:
        """Return which logins of the pipeline *key* were refused since the last news; empty where
        none were, or where that is not long ago.
        """
        now = {(each.name, cause): count for each in found for cause, count in each.counts.items()}
        addresses = {cause: text for each in found for cause, text in each.addresses.items()}
        if key not in self._counted:
            # What there was before us is old, and was told.
            self._counted[key] = now
            return ""
        before = self._counted[key]
        grown: Counter[Cause] = Counter()
        for (name, cause), count in now.items():
            grown[cause] += max(0, count - before.get((name, cause), 0))
        if not +grown or self.clock() - self._told_s.get(key, -TOLD_EVERY_S) < TOLD_EVERY_S:
            return ""
        self._counted[key], self._told_s[key] = now, self.clock()
        return "; ".join(
            f"{count} {cause.words} (last from {addresses.get(cause) or 'an unknown address'})"
            for cause, count in (+grown).most_common()
        )

    def forget(self, key: Key) -> None:
        """Forget a pipeline that is gone."""
        self._counted.pop(key, None)
        self._told_s.pop(key, None)
