"""Live through one simulated world, and say what came of it:

    python tests/support/simulated/run.py --seed 7

The last line is JSON. A world that is not as it should be tells its story before: the faults that
happened, and where lines are missing. `--only 3,17` leaves out all faults but these.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulated import faults, mutations
from simulated.faults import Fault
from simulated.oracle import Outcome
from simulated.scripts import SCRIPTS, played
from simulated.world import Shape, WentWrong, World, with_one_stream

IN_MEMORY = Path("/dev/shm")
# Paths go into messages: they are the same for each world, wherever it is.
ROOT = Path("/proc/self/cwd")
# Seconds between two faults, on average.
EVERY_S = 9.0


@dataclass(frozen=True, slots=True)
class Life:
    """What came of one world: a *problem*, or none, and its numbers."""

    planned: list[Fault]
    problem: str
    said: dict[str, Any]


def live(
    shape: Shape,
    *,
    every_s: float = EVERY_S,
    kinds: Sequence[str] | None = None,
    only: Sequence[int] | None = None,
    defect: str | None = None,
    history: Path | None = None,
    script: str | None = None,
) -> Life:
    """Live through one world, or through what *script* does to it. This process is of no use
    afterwards, but for its end: its clocks, files and chance are the world's, and whatever the dead
    left behind must not be tidied up.
    """
    began_s = time.process_time()
    folder = tempfile.mkdtemp(prefix="simulation-", dir=IN_MEMORY)
    os.chdir(folder)
    world = World(shape, ROOT)
    if history is not None:
        world.history = history.open("w", buffering=1)
    planned = [] if script else faults.plan(world, every_s=every_s, kinds=kinds)
    if only is not None:
        planned = [fault for number, fault in enumerate(planned) if number in only]
    mutations.plant(defect)
    problem, found = "", Outcome()
    try:
        found = world.loop.run_until_complete(
            played(world, script)
            if script
            else world.run(
                lambda number, calm: faults.carry_out(world, planned, number, is_calm=calm)
            )
        )
    except WentWrong as error:
        problem = str(error)
    except (AssertionError, RuntimeError, ExceptionGroup) as error:
        problem = "".join(traceback.format_exception(error))
    said = {
        "seed": shape.seed,
        "hours": round(world.loop.now_s / 3600, 3),
        "cpu_s": round(time.process_time() - began_s, 2),
        **found.counts(),
        "lines": sum(writer.lines for writer in world.writers),
        "problem": problem.strip().partition("\n")[0] if problem else "",
        "settled_s": round(max(world.settled_s, default=0.0), 1),
        "faults": dict(Counter(fault.kind for fault in planned)),
        "restarts": sum(process.restarts for process in world.processes.values()),
        "planned": len(planned),
        "digest": world.digest,
    }
    shutil.rmtree(folder, ignore_errors=True)
    return Life(planned, problem, said)


def main() -> int:
    """Return 0 where everything was as it should be."""
    options = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set is part of a history.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    logging.logProcesses = logging.logThreads = False
    kinds = options.faults and [kind for kind in options.faults.split(",") if kind]
    shape = Shape(
        options.seed,
        rounds=options.rounds,
        busy_s=options.busy,
        pause_s=options.pause,
    )
    shape = with_one_stream(shape) if options.single else shape
    life = live(
        SCRIPTS[options.script].shape if options.script else shape,
        every_s=options.every,
        kinds=kinds,
        only=None if options.only is None else [int(n) for n in options.only.split(",") if n],
        defect=options.defect,
        history=options.history and options.history.absolute(),
        script=options.script,
    )
    if life.problem:
        print(story(life))
    print(json.dumps(life.said), flush=True)
    # Nothing of a world may be tidied up: its dead would run their last words.
    sys.stdout.flush()
    os._exit(1 if life.problem else 0)


def story(life: Life) -> str:
    """Return the faults of a world, and what was wrong after them."""
    return "\n".join([*map(str, life.planned), life.problem.strip()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Live through one simulated world.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--script", choices=SCRIPTS, help="a small world, played by hand")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--single", action="store_true", help="one stream for all partitions")
    parser.add_argument("--busy", type=float, default=90.0, help="seconds of a round")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between faults")
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between writes")
    parser.add_argument("--faults", help="kinds of faults; without, some that the seed chooses")
    parser.add_argument("--only", help="the numbers of the faults that happen, from 0")
    parser.add_argument("--defect", help="a defect that is planted into the product")
    parser.add_argument("--history", type=Path, help="write down all that happens")
    parser.add_argument("--verbose", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
