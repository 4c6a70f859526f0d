"""Memory of a batch's size is not taken from the system anew for each batch."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BATCHES = 200
BATCH_BYTES = 512 * 1024
COUNTS_FAULTS = f"""
import resource, sys
from logpipeline.process import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({BATCHES}):
    read, packed, sent = (bytearray({BATCH_BYTES}) for _ in range(3))
    del read, packed, sent
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*words: str) -> int:
    """Return how many pages a process was given while it read and packed batches."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTS_FAULTS, *words], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that hands it back")
def test_the_memory_of_a_batch_serves_the_next_one() -> None:
    """By default, batches fault in their pages again, as far as the heap has no hole for them."""
    assert faults("keep") < faults() / 5
