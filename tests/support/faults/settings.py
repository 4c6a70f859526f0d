"""How much of the faults is run, and from which seed: the one place that reads the environment."""

from __future__ import annotations

import os
import random

# Kills in all, shared among the tests that kill; `make soak` runs a thousand.
ROUNDS_DEFAULT = 80
ROUNDS_SOAK = 1000
SEEDS_DEFAULT = 1
SEEDS_SOAK = 10


def is_soak() -> bool:
    """Return whether the full number is asked for."""
    return os.environ.get("SOAK") == "1"


def rounds() -> int:
    """Return how many times something is killed, over all tests that kill."""
    return int(os.environ.get("FAULT_ROUNDS") or (ROUNDS_SOAK if is_soak() else ROUNDS_DEFAULT))


def seeds() -> list[int]:
    """Return the seeds of this run: each test's name tells its own, to be set to run it again."""
    if given := os.environ.get("SEED"):
        return [int(given)]
    if is_soak():
        # New ones in each run, and the same in each process of a run, which share the tests out.
        fresh = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
        return [fresh.randrange(1_000_000) for _ in range(SEEDS_SOAK)]
    return list(range(1, SEEDS_DEFAULT + 1))
