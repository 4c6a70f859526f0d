"""Whether this operator may still write. Asked before each request, since the process may have been
stopped, or starved, for longer than its Lease: others lead by then, and it knows nothing of it.

What was sent a moment before may still be under way then; that a Lease outlives the fence leaves
it seconds to arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from logpipeline_operator.cluster.errors import ClusterAway


@dataclass(slots=True)
class Fence:
    """Open up to *until*, by the monotonic *clock*: for ever, where nobody else may lead."""

    clock: Callable[[], float]
    until: float = math.inf

    def check(self) -> None:
        """Return when we still lead.

        Raises:
            ClusterAway: the Lease was not renewed in time, and may be another operator's.
        """
        if self.clock() >= self.until:
            raise ClusterAway("the Lease was not renewed in time, so nothing is written any more")
