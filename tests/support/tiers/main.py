"""The command line of the runner: `tests/run PLAN`, as the Makefile calls it."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tiers import affected
from tiers.passed import Passed, state_of_files
from tiers.plans import PLANS, SMOKE
from tiers.runner import Runner
from tiers.screen import Screen
from tiers.steps import ROOT, Step, pytest_step

DESCRIPTION = "Runs tests of several tiers side by side, and accounts for all of them at the end."
CACHE = ROOT / ".cache" / "tests"
RUNS_KEPT = 5
REUSE = "REUSE"
# Collectors keep 5 % of a disk free and delete rotated files for it. The tests that count lines
# switch that off where they can; kubelets, servers and Spark have bounds of their own.
FREE_PERCENT_MIN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* name; 0 when all of it passed."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    steps = affected_steps(options.base) if options.plan == "changed" else PLANS[options.plan]()
    name = f"test-{options.plan}" if options.plan == "changed" else options.plan
    if options.list:
        for step in steps:
            print(f"{step.name:18} {' '.join(step.command)}")
        return 0
    folder = CACHE / f"{name}-{os.getpid()}"
    folder.mkdir(parents=True)
    _forget_old_runs()
    _tell_room()
    screen = Screen(name)
    passed = Passed(CACHE / "passed.json", state_of_files())
    runner = Runner(steps, folder, screen, float(os.cpu_count() or 1), passed)
    try:
        results = runner.run(is_reusing=os.environ.get(REUSE) == "1")
    except KeyboardInterrupt:
        print(f"\nended; what was printed so far is in {folder}")
        return 130
    screen.account(results)
    return 1 if any(result.fails_run for result in results) else 0


def affected_steps(base: str) -> list[Step]:
    """Return one step for each tier that has tests which the change since *base* touches. Of the
    slow tiers it runs the smoke alone.
    """
    files = affected.touched_tests(affected.changed_files(base))
    tiers: dict[str, list[str]] = {}
    for file in files:
        tiers.setdefault(Path(file).parts[1], []).append(file)
    steps = []
    for tier, names in tiers.items():
        print(f"tests/{tier}: {len(names)} files are touched", *names, sep="\n  ")
        words = ("-n", "2") if tier in affected.SIDE_BY_SIDE else ()
        smoke = () if tier in affected.QUICK else SMOKE
        shows = f"{len(names)} files{', the smoke of them' if smoke else ''}"
        steps.append(pytest_step(tier, shows, *names, *words, *smoke, load=1.2))
    if not files:
        print(f"no test is touched by what changed since {base}")
    return steps


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tests/run", description=DESCRIPTION)
    parser.add_argument("plan", choices=[*PLANS, "changed"])
    parser.add_argument(
        "--base", default="HEAD", help="changed: since which commit (default: HEAD)"
    )
    parser.add_argument("--list", action="store_true", help="print the steps, and run none")
    parser.epilog = f"{REUSE}=1 leaves out the steps that passed before on these very files."
    return parser


def _forget_old_runs() -> None:
    runs = [path for path in CACHE.iterdir() if path.is_dir()]
    for old in sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True)[RUNS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _tell_room() -> None:
    room = shutil.disk_usage(CACHE)
    if room.free * 100 < room.total * FREE_PERCENT_MIN:
        print(f"little room: {room.free >> 30} GiB of the disk are free; tests may fail for that")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
