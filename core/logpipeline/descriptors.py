"""How many files a process may keep open beside all else that it opens."""

from __future__ import annotations

import contextlib
import resource


def files_at_once(files_max: int, *, besides: int) -> int:
    """Return how many of *files_max* files may be open at once, so that the process can open
    *besides* other descriptors; its limit is raised for that as far as it may be.
    """
    # Files that wait for lines are kept open for as long as there is room. Where they took the last
    # descriptor, nothing else could be opened: no connection, and no state to be saved.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files_max + besides
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return files_max
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    # macOS has a limit below the one that it names.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    return min(files_max, max(soft - besides, soft // 2))
