"""When to look again at a pipeline in which something is under way whose end causes no event here:
a claim that binds, a hand-over, a server that starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from logpipeline_operator.queue import Key


@dataclass(slots=True)
class Patience:
    """How long was waited for what: *first_s* after anything new, and while nothing changes twice
    as long each time, up to *longest_s*, so that hundreds of pipelines that wait for a node do not
    keep Kubernetes busy.
    """

    first_s: float
    longest_s: float
    _waits: dict[Key, tuple[str, float]] = field(default_factory=dict)

    def wait_s(self, key: Key, version: str) -> float:
        """Return after how many seconds to look again at the pipeline that was seen in *version*:
        the same one as before says that neither its user nor its status had anything new.
        """
        former, waited_s = self._waits.get(key, ("", 0.0))
        wait_s = self.first_s
        if version == former:
            wait_s = max(self.first_s, min(2 * waited_s, self.longest_s))
        self._waits[key] = (version, wait_s)
        return wait_s

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget pipelines that are no longer there."""
        known = set(keys)
        self._waits = {key: wait for key, wait in self._waits.items() if key in known}
