"""Live through many worlds, and say what came of them:

    python tests/support/simulated/campaign.py --seeds 100
    python tests/support/simulated/campaign.py --hours 10 --resume build/simulated.jsonl
    python tests/support/simulated/campaign.py --scripts
    python tests/support/simulated/campaign.py --defects
    python tests/support/simulated/campaign.py --known

The second goes on where it was stopped. The third plays the short worlds that have a script. The
fourth plants one defect after the other into the product, and shows which of them a script or a
world notices; the fifth plants each where it is known to show. A world that fails is shrunk, and
its story told; `--keep` writes it down as a test.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumed import note, rows_by
from simulated.forks import Job, Lived, lives, repeatable
from simulated.mutations import DEFECTS
from simulated.planting import Search, plant, play_all, show_known
from simulated.scripts import SCRIPTS
from simulated.shrink import kept, shortest, story
from simulated.world import Shape, with_one_stream

REGRESSIONS = Path(__file__).parents[2] / "simulation" / "regressions.json"
SHRUNK_MAX = 3


@dataclass(slots=True)
class Sum:
    """What came of all worlds so far; *by_kind* counts rounds, lines and failures by fault."""

    worlds: int = 0
    hours: float = 0.0
    cpu_s: float = 0.0
    lines: int = 0
    failed: list[Lived] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    by_kind: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, said: dict[str, Any], rounds: int) -> None:
        """Add what a world said."""
        self.worlds += 1
        self.hours += said.get("hours", 0)
        self.cpu_s += said.get("cpu_s", 0)
        self.lines += said.get("lines", 0)
        for kind, count in said.get("faults", {}).items():
            self.happened[kind] += count
            self.by_kind[kind].update(
                rounds=rounds,
                lines=said.get("lines", 0),
                lost=said.get("unnamed", 0),
                twice=0 if not said.get("problem") else said.get("twice", 0),
                failed=bool(said.get("problem")),
            )

    def table(self) -> str:
        """Return a row for each kind of fault: how often, in how many rounds, what failed."""
        head = ("fault", "happened", "rounds", "lines", "unexplained", "twice", "failed")
        rows = [
            (kind, self.happened[kind], *(counts[n] for n in ("rounds", "lines", "lost", "twice",
                                                              "failed")))
            for kind, counts in sorted(self.by_kind.items())
        ]  # fmt: skip
        return "\n".join(
            f"{row[0]!s:<10}" + "".join(f"{cell!s:>13}" for cell in row[1:])
            for row in [head, *rows]
        )


def main() -> int:
    """Return 0 where all worlds were as they should be, and all defects were found."""
    repeatable()
    options = _parser().parse_args()
    if options.known:
        return show_known(is_short=options.known == "short", workers=options.workers)
    if options.scripts is not None:
        names = [name for name in options.scripts.split(",") if name] or list(SCRIPTS)
        return play_all(names, seed=options.first, workers=options.workers)
    if options.defects is None:
        return _live(options)
    names = [name for name in options.defects.split(",") if name] or list(DEFECTS)
    seeds = range(options.first, options.first + options.seeds)
    search = Search(
        seeds,
        rounds=options.rounds,
        seconds=options.seconds,
        workers=options.workers,
        is_aimed=options.aimed,
    )
    return plant(names, search, is_kept=options.keep)


def _live(options: argparse.Namespace) -> int:
    began_s, total, done = time.time(), Sum(), rows_by("seed", options.resume)
    for said in done.values():
        total.add(said, options.rounds)

    def jobs() -> Iterator[Job]:
        for seed in range(options.first, options.first + options.seeds):
            if total.hours >= options.hours:
                return
            if seed not in done:
                shape = Shape(seed, rounds=options.rounds)
                yield Job(with_one_stream(shape) if options.single else shape)

    for life in lives(jobs(), workers=options.workers):
        total.add({**life.said, "problem": life.problem}, options.rounds)
        if life.problem:
            total.failed.append(life)
            print(f"seed {life.job.shape.seed} fails", flush=True)
        else:
            note(life.said, options.resume)
    print(total.table())
    speed = total.hours * 3600 / max(total.cpu_s, 0.1)
    print(
        f"{total.worlds} worlds, {total.hours:.2f} hours, {sum(total.happened.values())} faults, "
        f"{total.lines} lines; {len(total.failed)} failed; {speed:.0f} times as fast as time, "
        f"{time.time() - began_s:.0f} s"
    )
    for life in total.failed[:SHRUNK_MAX]:
        short = shortest(life, workers=options.workers)
        print(story(short), flush=True)
        if options.keep:
            kept(short, REGRESSIONS)
    return 1 if total.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Live through many simulated worlds.")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="at most so many worlds")
    parser.add_argument("--hours", type=float, default=1e9, help="at most so many simulated hours")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a world")
    parser.add_argument("--single", action="store_true", help="one stream for all partitions")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--resume", type=Path, help="where to note what is done, and go on from")
    parser.add_argument("--keep", action="store_true", help="make what fails a regression test")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop planting after so long")
    parser.add_argument("--defects", nargs="?", const="", help="plant these, or all")
    parser.add_argument("--aimed", action="store_true", help="only by the scripts that aim at it")
    parser.add_argument(
        "--known",
        nargs="?",
        const="all",
        choices=["all", "short"],
        help="plant each where it is known to show; short: where that is a script",
    )
    parser.add_argument("--scripts", nargs="?", const="", help="play these scripts, or all")
    return parser


if __name__ == "__main__":
    sys.exit(main())
