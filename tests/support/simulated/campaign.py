"""Live through many worlds, and say what came of them:

    python tests/support/simulated/campaign.py --seeds 100
    python tests/support/simulated/campaign.py --hours 10 --resume build/simulated.jsonl
    python tests/support/simulated/campaign.py --defects

The second goes on where it was stopped. The third plants one defect after the other into the
product, and shows which of them a world notices. A world that fails is shrunk, and its story told;
`--keep` writes it down as a test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulated.faults import MIXTURES
from simulated.forks import Job, Lived, lives, repeatable
from simulated.mutations import DEFECTS
from simulated.shrink import kept, shortest, story
from simulated.world import Shape

REGRESSIONS = Path(__file__).parents[2] / "simulation" / "regressions.json"
SHRUNK_MAX = 3
# Where a defect is planted, faults come more often.
DEFECT_EVERY_S = 5.0


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
    return _plant_all(options) if options.defects is not None else _live(options)


def _live(options: argparse.Namespace) -> int:
    began_s, total, done = time.time(), Sum(), _done(options.resume)
    for said in done.values():
        total.add(said, options.rounds)

    def jobs() -> Iterator[Job]:
        for seed in range(options.first, options.first + options.seeds):
            if total.hours >= options.hours:
                return
            if seed not in done:
                yield Job(Shape(seed, rounds=options.rounds))

    for life in lives(jobs(), workers=options.workers):
        total.add({**life.said, "problem": life.problem}, options.rounds)
        if life.problem:
            total.failed.append(life)
            print(f"seed {life.job.shape.seed} fails", flush=True)
        elif options.resume is not None:
            with options.resume.open("a") as file:
                file.write(json.dumps(life.said) + "\n")
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


def _done(path: Path | None) -> dict[int, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["seed"]: row for row in rows}


def _plant_all(options: argparse.Namespace) -> int:
    names = [name for name in options.defects.split(",") if name] or list(DEFECTS)
    began_s = time.time()
    tried: Counter[str] = Counter()
    found: dict[str, Lived] = {}

    def jobs() -> Iterator[Job]:
        # One seed for all, then the next: what is found is not tried again.
        for seed in range(options.first, options.first + options.seeds):
            for name in names:
                if name not in found and time.time() - began_s < options.seconds:
                    yield Job(
                        Shape(seed, rounds=options.rounds),
                        every_s=DEFECT_EVERY_S,
                        kinds=MIXTURES[seed % len(MIXTURES)],
                        defect=name,
                    )

    for life in lives(jobs(), workers=options.workers):
        name = str(life.job.defect)
        tried[name] += 1
        if life.problem and name not in found:
            found[name] = life
    for name in names:
        seen = found.get(name)
        where = f"seed {seen.job.shape.seed}" if seen else "not found"
        text = [line for line in (seen.problem if seen else "").strip().splitlines() if line]
        is_error = bool(text) and text[0].startswith(("Traceback", "  +", "the world"))
        what = (text[-1] if is_error else text[0])[:90] if text else ""
        print(f"{name:<46} {tried[name]:>3}  {where:<10} {what}")
    print(f"{len(found)} of {len(names)} found")
    return 0 if len(found) == len(names) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Live through many simulated worlds.")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="at most so many worlds")
    parser.add_argument("--hours", type=float, default=1e9, help="at most so many simulated hours")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a world")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--resume", type=Path, help="where to note what is done, and go on from")
    parser.add_argument("--keep", action="store_true", help="make what fails a regression test")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop planting after so long")
    parser.add_argument("--defects", nargs="?", const="", help="plant these, or all")
    return parser


if __name__ == "__main__":
    sys.exit(main())
