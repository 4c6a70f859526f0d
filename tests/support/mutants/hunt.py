"""Make small wrong changes of the modules that decide, one at a time, and say what notices each:

    python tests/support/mutants/hunt.py --resume build/mutants.jsonl
    python tests/support/mutants/hunt.py --modules logpipeline.spans --seeds 6

The scripts that reach the changed line run, the unit tests of its module, its tests with a real
server, the searches of the protocol that reach its function, and long worlds, until one of them
fails. If none does, a test is missing, or the change makes no difference: `survivors.json` lists
those that make none, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from forked import Task, results
from mutants import proofs
from mutants.planted import Mutant, mutants, plant
from resumed import note, rows_by
from simulated.forks import repeatable

# The modules that decide which bytes are new, who owns what, what is sent again, and what may go;
# and the searches that are driven by each.
MODULES: dict[str, tuple[str, ...]] = {
    "logpipeline.spans": ("shipping", "partitions"),
    "logpipeline.streamstate": ("partitions", "claims"),
    "logpipeline.extents": ("shipping", "partitions"),
    "logpipeline.deduplication": ("shipping", "partitions"),
    "logpipeline.group.ownership": ("partitions",),
    "logpipeline.consuming.claims": ("claims",),
    "logpipeline.plan.trim": ("one_stream", "partitions"),
    "logpipeline_collector.recovery": ("partitions",),
    "logpipeline_collector.epochs": ("partitions",),
    "logpipeline_collector.stream_position": ("partitions", "one_stream"),
    "logpipeline_collector.intake": (),
    "logpipeline_collector.sources": (),
    "logpipeline_collector.snapshot_schedule": (),
    "logpipeline_shipper.account": ("shipping",),
    "logpipeline_shipper.resend": ("shipping",),
}
SURVIVORS = Path(__file__).with_name("survivors.json")
KINDS = ("script", "unit", "live", "search", "world")
ROUNDS = 3
# Those that noticed most are likely to notice the next one; all others take longer than unit tests.
FIRST_SCRIPTS = 6
JUDGED_WITHIN_S = 3_600


@dataclass(frozen=True, slots=True)
class Trial:
    """What may notice the mutants of one module."""

    units: Sequence[str]
    lives: Sequence[str]
    searches: Sequence[str]
    seeds: Sequence[int]

    def judged(self, mutant: Mutant, scripts: Sequence[str], searches: Sequence[str]) -> list[str]:
        """Return what noticed *mutant* first, as its kind and its name; empty where nothing did.
        Only these *scripts* and *searches* reach it. This process, and all that it forks, has the
        mutant from now on.
        """
        plant(mutant)
        steps = [
            *(("script", name) for name in scripts[:FIRST_SCRIPTS]),
            *(("unit", file) for file in self.units),
            *(("script", name) for name in scripts[FIRST_SCRIPTS:]),
            *(("live", file) for file in self.lives),
            *(("search", file) for file in searches),
            *(("world", str(seed)) for seed in self.seeds),
        ]
        for kind, name in steps:
            if _fails(kind, name):
                return [kind, Path(name).name]
        return []


def _fails(kind: str, name: str) -> bool:
    if kind == "script":
        return proofs.script_fails(name)
    if kind == "world":
        return proofs.world_fails(int(name), ROUNDS)
    return proofs.tests_fail(name)


def main() -> int:
    """Return 0 where each mutant is noticed, or it is said why none notices it."""
    repeatable()
    options = _parser().parse_args()
    modules = [name for name in options.modules.split(",") if name] or list(MODULES)
    done = rows_by("mutant", options.resume)
    seeds = range(options.first, options.first + options.seeds)
    trials = {
        module: Trial(
            proofs.tests_of(module, "unit"),
            proofs.tests_of(module, "live"),
            [] if options.quick else proofs.searches(MODULES.get(module, ())),
            seeds,
        )
        for module in modules
    }
    proofs.see_them_pass(
        {
            file
            for trial in trials.values()
            for file in (*trial.units, *trial.lives, *trial.searches)
        },
        workers=options.workers,
    )
    for mutant, noticed in _hunted(trials, done, workers=options.workers):
        row = {
            "mutant": mutant.name,
            "was": mutant.change.was,
            "becomes": mutant.change.becomes,
            "by": noticed,
        }
        done[mutant.name] = row
        print(f"{'noticed' if noticed else 'SURVIVES'} {mutant} {' '.join(noticed)}", flush=True)
        note(row, options.resume)
    return _summary([mutant for module in modules for mutant in mutants(module)], done)


def _hunted(
    trials: dict[str, Trial], done: dict[str, Any], *, workers: int
) -> Iterator[tuple[Mutant, list[str]]]:
    """Yield each mutant that is not *done*, with what noticed it."""
    scripts = proofs.lines_of_scripts(list(trials), workers=workers)
    files = [file for trial in trials.values() for file in trial.searches]
    searches = proofs.lines_of_searches(files, list(trials), workers=workers)
    # What noticed many will notice more.
    lucky: Counter[str] = Counter()

    def tasks() -> Iterator[tuple[Mutant, Task]]:
        for module, trial in trials.items():
            for mutant in mutants(module):
                if _is_same(mutant, done.get(mutant.name)):
                    continue
                place = (module, mutant.change.line)
                names = [name for name, reached in scripts.items() if place in reached]
                names.sort(key=lambda name: -lucky[name])
                units = sorted(trial.units, key=lambda file: -lucky[Path(file).name])
                # A search may reach a line of a function only late.
                lines = {(module, line) for line in range(mutant.first, mutant.last + 1)}
                looking = [file for file in trial.searches if lines & searches[file]]
                yield mutant, partial(replace(trial, units=units).judged, mutant, names, looking)

    for mutant, noticed in results(tasks(), workers=workers, within_s=JUDGED_WITHIN_S):
        if noticed is None:
            raise proofs.NotWell(f"{mutant} could not be tried")
        if noticed:
            lucky[noticed[1]] += 1
        yield mutant, noticed


def _summary(all_of_them: Iterable[Mutant], done: dict[str, Any]) -> int:
    explained = explained_survivors()
    counts: Counter[tuple[str, str]] = Counter()
    unexplained = 0
    for mutant in all_of_them:
        by = done[mutant.name]["by"]
        kind = by[0] if by else "survives"
        if not by and text_of(mutant) in explained.get(mutant.module, {}):
            kind = "explained"
        unexplained += kind == "survives"
        for module in (mutant.module, "all"):
            counts[module, kind] += 1
            counts[module, "mutants"] += 1
    columns = ("mutants", *KINDS, "explained", "survives")
    print(f"{'':<40}" + "".join(f"{column:>11}" for column in columns))
    for module in dict.fromkeys(module for module, _ in counts if module != "all"):
        print(f"{module:<40}" + "".join(f"{counts[module, column]:>11}" for column in columns))
    print(f"{'all':<40}" + "".join(f"{counts['all', column]:>11}" for column in columns))
    return 1 if unexplained else 0


def explained_survivors() -> dict[str, dict[str, str]]:
    """Return why mutants make no difference, by their module and by `text_of` them."""
    return dict(json.loads(SURVIVORS.read_text()))


def text_of(mutant: Mutant) -> str:
    """Return what a mutant is called in `SURVIVORS`, wherever its function stands."""
    return f"{mutant.function}: {mutant.change.was} -> {mutant.change.becomes}"


def _is_same(mutant: Mutant, row: dict[str, Any] | None) -> bool:
    """Return whether *row* is of *mutant*, and not of one that its function had before."""
    change = mutant.change
    return row is not None and (row["was"], row["becomes"]) == (change.was, change.becomes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Make small wrong changes of the code, and list those that no test notices."
    )
    parser.add_argument("--modules", default="", help="of these, separated by commas; or of all")
    parser.add_argument("--quick", action="store_true", help="without searches, which take longest")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--resume", type=Path, help="where to note what is done, and go on from")
    parser.add_argument("--first", type=int, default=1, help="the first seed of the worlds")
    parser.add_argument("--seeds", type=int, default=0, help="so many worlds for what is left")
    return parser


if __name__ == "__main__":
    sys.exit(main())
