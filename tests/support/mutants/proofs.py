"""Runs scripts of the simulated world, long worlds, and files of tests, each in a process of its
own, to see whether they fail.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

from forked import Task, result, results
from mutants.reach import lines_reached
from simulated.forks import Job, lived, lived_here
from simulated.planting import of_script, of_seed
from simulated.scripts import SCRIPTS
from tiers import affected

TESTS = Path(__file__).parents[2]
# Unit tests of a module take seconds, searches up to a minute.
PYTEST_CPU_S, PYTEST_S = 120, 900
MEMORY_BYTES_MAX = 6 << 30
# Of pytest: all passed; some failed.
PASSED, FAILED = 0, 1
# So long each search runs while the lines that it reaches are noted.
GLANCE_S = 4
Line = tuple[str, int]
# Files of searches also have tests that break a decision on purpose. These are left out.
CHOSEN = ("-k", "not the_search_finds_a_broken_decision")
SEARCHES = "protocol/test_{}.py"


class NotWell(Exception):
    """A proof fails although nothing is changed, or cannot be run."""


def lines_of_scripts(modules: Sequence[str], *, workers: int) -> dict[str, set[Line]]:
    """Return the lines of *modules* that each script reaches."""
    tasks = (
        (name, partial(lines_reached, partial(lived_here, of_script(name)), modules))
        for name in SCRIPTS
    )
    return _lines(tasks, workers=workers)


def lines_of_searches(
    files: Iterable[str], modules: Sequence[str], *, workers: int
) -> dict[str, set[Line]]:
    """Return the lines of *modules* that each of *files*, of searches, reaches in its first
    seconds.
    """
    tasks = (
        (file, partial(lines_reached, partial(_test, file, f"--timeout={GLANCE_S}"), modules))
        for file in sorted(set(files))
    )
    return _lines(tasks, workers=workers)


def _lines(tasks: Iterable[tuple[str, Task]], *, workers: int) -> dict[str, set[Line]]:
    found = {}
    for name, lines in results(tasks, workers=workers, within_s=PYTEST_S):
        if lines is None:
            raise NotWell(f"{name} does not end")
        found[name] = {(module, line) for module, line in lines}
    return found


def tests_of(module: str, tier: str) -> list[str]:
    """Return the files of tests of *tier* that import *module*, or something of it."""
    files = sorted((TESTS / tier).glob("test_*.py"))
    return [str(file) for file in files if module in affected.read(file).imports]


def searches(names: Iterable[str]) -> list[str]:
    """Return the files of the searches of these *names*."""
    return [str(TESTS / SEARCHES.format(name)) for name in names]


def script_fails(name: str) -> bool:
    """Return whether the script *name* finds anything wrong, or does not end."""
    return _fails(of_script(name))


def world_fails(seed: int, rounds: int) -> bool:
    """Return whether the world of *seed* shows anything wrong, or does not end."""
    return _fails(of_seed(seed, rounds))


def _fails(job: Job) -> bool:
    return not lived(job).is_clean


def tests_fail(file: str) -> bool:
    """Return whether a test of *file* fails, or does not end.

    Raises:
        NotWell: pytest could not run them.
    """
    code: int | None = result(partial(_test, file, "-x"), within_s=PYTEST_S)
    if code not in (PASSED, FAILED, None):
        raise NotWell(f"pytest ended with {code}: {file}")
    return code != PASSED


def see_them_pass(files: Iterable[str], *, workers: int) -> None:
    """Run the tests of *files*.

    Raises:
        NotWell: some do not pass.
    """
    tasks = ((file, partial(_test, file, "-x")) for file in sorted(files))
    for file, code in results(tasks, workers=workers, within_s=PYTEST_S):
        if code != PASSED:
            raise NotWell(f"pytest ended with {code}: {file}")


def _test(file: str, option: str) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (PYTEST_CPU_S, PYTEST_CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    # As in a new process: `repeatable` has turned logging off, which tests look at.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    plugins = ("-p", "no:cacheprovider", "-p", "no:xdist")
    return int(pytest.main([option, "-q", *plugins, *CHOSEN, file]))
