"""Live through one simulated world, and say what came of it:

    python tests/support/simulated/run.py --seed 7 --hours 1

The last line is JSON. A world that is not as it should be tells its story before: the faults that
happened, and where lines are missing. `--only 3,17` leaves out all faults but these.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulated import faults, mutations
from simulated.faults import Fault
from simulated.oracle import Outcome, outcome
from simulated.world import Shape, World

IN_MEMORY = Path("/dev/shm")
# Paths go into messages: they are the same for each world, wherever it is.
ROOT = Path("/proc/self/cwd")


def main() -> int:
    """Return 0 where nothing was lost, doubled or out of order."""
    options = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set is part of a history.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    history = options.history and options.history.absolute()
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=IN_MEMORY) as folder:
        os.chdir(folder)
        world = World(Shape(options.seed, options.hours, pause_s=options.pause), ROOT)
        if history is not None:
            world.history = history.open("w", buffering=1)
        planned = _planned(world, options)
        mutations.plant(options.defect)
        problem, found = "", None
        try:
            world.loop.run_until_complete(world.run(faults.carry_out(world, planned)))
            found = outcome(world)
        except (AssertionError, RuntimeError, ExceptionGroup) as error:
            problem = "".join(traceback.format_exception(error))
    is_clean = found is not None and found.is_clean
    if not is_clean:
        _tell(planned, found, problem)
    print(json.dumps(_said(world, planned, found, problem)), flush=True)
    # Nothing of a world may be tidied up: its dead would run their last words.
    os._exit(0 if is_clean else 1)


def _planned(world: World, options: argparse.Namespace) -> list[Fault]:
    kinds = [kind for kind in options.faults.split(",") if kind]
    planned = faults.plan(world, every_s=options.every, kinds=kinds)
    if options.only is not None:
        kept = {int(number) for number in options.only.split(",") if number}
        planned = [fault for number, fault in enumerate(planned) if number in kept]
    return planned


def _tell(planned: Sequence[Fault], found: Outcome | None, problem: str) -> None:
    for fault in planned:
        print(fault)
    for line in found.explained if found is not None else [problem]:
        print(line)


def _said(
    world: World, planned: Sequence[Fault], found: Outcome | None, problem: str
) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = usage.ru_utime + usage.ru_stime
    counts = found.counts() if found is not None else {}
    return {
        "seed": world.shape.seed,
        "hours": round(world.loop.now_s / 3600, 2),
        "cpu_s": round(cpu_s, 1),
        **counts,
        "problem": problem.strip().rpartition("\n")[2],
        "faults": dict(Counter(fault.kind for fault in planned)),
        "planned": len(planned),
        "digest": world.digest,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Live through one simulated world.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between faults")
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between writes to a log")
    parser.add_argument("--faults", default=",".join(faults.KINDS))
    parser.add_argument("--only", help="the numbers of the faults that happen, from 0")
    parser.add_argument("--defect", help="a defect that is planted into the product")
    parser.add_argument("--history", type=Path, help="write down all that happens")
    parser.add_argument("--verbose", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
