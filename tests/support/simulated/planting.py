"""Searches for what shows a planted defect: a script first, which takes a second, then a seed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulated.faults import MIXTURES
from simulated.forks import Job, Lived, lives
from simulated.mutations import DEFECTS
from simulated.scripts import SCRIPTS, aiming_at
from simulated.world import Shape

# What shows each defect: {"defect": …, "script": …}, or "seed" and "rounds", or why it "survives".
KNOWN = Path(__file__).parents[2] / "simulation" / "defects.json"
# Where a defect is planted, faults come more often.
EVERY_S = 5.0
SHOWN_CHARS = 90


@dataclass(frozen=True, slots=True)
class Search:
    """Which *seeds*, of so many *rounds*, are tried behind the scripts, and for how long. With
    *is_aimed*, only the scripts that aim at a defect are played.
    """

    seeds: Sequence[int]
    rounds: int
    seconds: float
    workers: int
    is_aimed: bool = False


def known() -> list[dict[str, Any]]:
    """Return the rows of `KNOWN`."""
    return json.loads(KNOWN.read_text()) if KNOWN.exists() else []


def of_script(name: str, defect: str | None = None, *, seed: int = 1) -> Job:
    """Return the job that plays the script *name*; *seed* decides how long all takes."""
    return Job(replace(SCRIPTS[name].shape, seed=seed), defect=defect, script=name)


def of_seed(seed: int, rounds: int, defect: str | None = None) -> Job:
    """Return the job that lives through the world of *seed*, with *defect* if one is given."""
    kinds = MIXTURES[seed % len(MIXTURES)]
    return Job(Shape(seed, rounds=rounds), every_s=EVERY_S, kinds=kinds, defect=defect)


def job_of(row: dict[str, Any]) -> Job | None:
    """Return the job that shows the defect of *row*; None where it survives."""
    if "script" in row:
        return of_script(row["script"], row["defect"])
    return of_seed(row["seed"], row["rounds"], row["defect"]) if "seed" in row else None


def play_all(names: Sequence[str], *, seed: int, workers: int) -> int:
    """Play the scripts *names*, and return 0 where none finds anything."""
    failed = 0
    for life in lives((of_script(name, seed=seed) for name in names), workers=workers):
        failed += bool(life.problem)
        print(f"{life.job.script:<45} {_numbers(life)}  {_shown(life) or 'fine'}", flush=True)
    print(f"{failed} of {len(names)} scripts found something")
    return 1 if failed else 0


def show_known(*, is_short: bool, workers: int) -> int:
    """Plant each defect where it is known to show, and return 0 where all do. With *is_short*,
    leave out what only a long world shows.
    """
    rows = [row for row in known() if not (is_short and "seed" in row)]
    jobs = [job for row in rows if (job := job_of(row)) is not None]
    hidden = 0
    for life in lives(jobs, workers=workers):
        hidden += not life.problem
        print(f"{life.job.defect:<46} {_place(life):<45} {_shown(life) or 'not seen'}", flush=True)
    for row in rows:
        if "survives" in row:
            print(f"{row['defect']:<46} survives: {row['survives']}")
    print(f"{len(jobs) - hidden} of {len(rows)} seen")
    return 1 if hidden else 0


def plant(names: Sequence[str], search: Search, *, is_kept: bool) -> int:
    """Plant *names*, one at a time, until something shows each; return 0 where all are seen."""
    began_s = time.time()
    tried: Counter[str] = Counter()
    found: dict[str, Lived] = {}

    def jobs() -> Iterator[Job]:
        # What is found is not tried again.
        for job in _candidates(names, search):
            if job.defect not in found and time.time() - began_s < search.seconds:
                yield job

    for life in lives(jobs(), workers=search.workers):
        name = str(life.job.defect)
        tried[name] += 1
        if life.problem and name not in found:
            found[name] = life
            print(f"{name:<46} {tried[name]:>3}  {_place(life):<40} {_shown(life)}", flush=True)
            if is_kept:
                _keep(life)
    for name in names:
        if name not in found:
            print(f"{name:<46} {tried[name]:>3}  not found")
    print(f"{len(found)} of {len(names)} found")
    return 0 if len(found) == len(names) else 1


def _candidates(names: Sequence[str], search: Search) -> Iterator[Job]:
    for name in names:
        yield from (of_script(script, name) for script in aiming_at(name))
    if search.is_aimed:
        return
    for script in SCRIPTS:
        yield from (of_script(script, name) for name in names if script not in aiming_at(name))
    for seed in search.seeds:
        yield from (of_seed(seed, search.rounds, name) for name in names)


def _keep(life: Lived) -> None:
    row: dict[str, Any] = {"defect": life.job.defect}
    if life.job.script is not None:
        row["script"] = life.job.script
    else:
        row |= {"seed": life.job.shape.seed, "rounds": life.job.shape.rounds}
    rows = {each["defect"]: each for each in known()} | {life.job.defect: row}
    ordered = [rows[name] for name in DEFECTS if name in rows]
    KNOWN.write_text("[\n" + ",\n".join(f" {json.dumps(each)}" for each in ordered) + "\n]\n")


def _place(life: Lived) -> str:
    return life.job.script or f"seed {life.job.shape.seed}"


def _numbers(life: Lived) -> str:
    return f"{life.said.get('cpu_s', 0):5.1f} s {life.said.get('hours', 0) * 60:5.1f} min"


def _shown(life: Lived) -> str:
    """Return the line that says what was wrong."""
    text = [line for line in life.problem.strip().splitlines() if line]
    is_error = bool(text) and text[0].startswith(("Traceback", "  +", "the world"))
    return (text[-1] if is_error else text[0])[:SHOWN_CHARS] if text else ""
