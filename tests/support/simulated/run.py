"""Live through one simulated world, and say what came of it:

python tests/support/simulated/run.py --seed 7 --hours 1
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
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
    sys.path.insert(0, str(HERE.parent))
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    from simulated import faults
    from simulated.oracle import outcome
    from simulated.world import Shape, World

    history = options.history and options.history.absolute()
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=IN_MEMORY) as folder:
        os.chdir(folder)
        world = World(Shape(options.seed, options.hours, pause_s=options.pause), ROOT)
        if history is not None:
            world.history = history.open("w", buffering=1)
        kinds = [kind for kind in options.faults.split(",") if kind]
        planned = faults.plan(world, every_s=options.every, kinds=kinds)
        world.loop.run_until_complete(world.run(faults.carry_out(world, planned)))
        found = outcome(world)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = usage.ru_utime + usage.ru_stime
        said = {
            "seed": options.seed,
            "hours": round(world.loop.now_s / 3600, 2),
            "cpu_s": round(cpu_s, 1),
            "speed": round(world.loop.now_s / cpu_s),
            "lines": found.written,
            "lost": found.lost,
            "twice": found.twice,
            "late": found.late,
            "messages": world.notes,
            "faults": Counter(fault.kind for fault in planned),
            "digest": world.digest,
        }
        print(json.dumps(said), flush=True)
    # Nothing of a world may be tidied up: its dead would run their last words.
    os._exit(0 if found.is_clean else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Live through one simulated world.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between faults")
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between writes to a log")
    parser.add_argument("--faults", default="cut,freeze,kill,down,drop,part,move,tail")
    parser.add_argument("--history", type=Path, help="write down all that happens")
    parser.add_argument("--verbose", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
