"""Settings of this process in the C library and the kernel: kept memory, and its end."""

from __future__ import annotations

import ctypes
import signal
import sys

# Twice what free memory at the end of a heap amounts to between two batches of the usual size.
FREE_BYTES_KEPT = 8 * 1024 * 1024
# The library maps a larger block by itself, and unmaps it when it is freed. No usual batch is one.
ALONE_BYTES = 4 * 1024 * 1024
# The numbers that <malloc.h> gives them.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_PR_SET_PDEATHSIG = 1


def keep_freed_memory() -> bool:
    """Keep up to `FREE_BYTES_KEPT` that are free, for the life of the process; False where the C
    library has no such setting.
    """
    # By its defaults the library hands buffers of a batch's size back to the system as soon as they
    # are free, and takes them again for the next one, page by page. That was half of the CPU time
    # that a shipper spent in the kernel, and of a collector's now and then, as its heap happened to
    # lie.
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = ((_M_MMAP_THRESHOLD, ALONE_BYTES), (_M_TRIM_THRESHOLD, FREE_BYTES_KEPT))
    return all(mallopt(name, value) == 1 for name, value in wanted)


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
