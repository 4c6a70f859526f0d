"""Named places at which a test ends the process as ``kill -9`` would, to stand between any two
steps.

Set ``LOGPIPELINE_FAILPOINT=<name>:<n>`` to die when *name* is reached for the n-th time. Unset, a
place costs one look-up.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "LOGPIPELINE_FAILPOINT"

_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = {_name: int(_count) if _count.isdecimal() else 1} if _name else {}


def reach(name: str) -> None:
    """Die here, without any clean-up, if the environment asks for it."""
    if name not in _left:
        return
    _left[name] -= 1
    if _left[name] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
