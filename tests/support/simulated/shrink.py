"""The fewest faults with which a world still fails, and its story."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from simulated.forks import Job, Lived, lives


def shrunk(
    numbers: Sequence[int], fails: Callable[[Sequence[Sequence[int]]], int | None]
) -> list[int]:
    """Return the fewest of *numbers* that this way finds with which a world still fails. *fails*
    gets several choices, and returns the place of the first that does, or None.
    """
    kept, parts = list(numbers), 2
    while len(kept) > 1:
        size = max(1, len(kept) // parts)
        fewer = [kept[:at] + kept[at + size :] for at in range(0, len(kept), size)]
        found = fails(fewer)
        if found is not None:
            kept, parts = fewer[found], max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts *= 2
    return kept


def shortest(failed: Lived, *, workers: int) -> Lived:
    """Return the life with the fewest faults in which what *failed* fails still."""
    best = failed
    numbers = failed.job.only
    if numbers is None:
        numbers = tuple(range(failed.said.get("planned", 0)))

    def fails(choices: Sequence[Sequence[int]]) -> int | None:
        nonlocal best
        jobs = [replace(failed.job, only=tuple(each)) for each in choices]
        for life in lives(jobs, workers=workers):
            if life.problem:
                best = life
                return jobs.index(life.job)
        return None

    shrunk(numbers, fails)
    return best


def kept(life: Lived, path: Path) -> None:
    """Add the world of *life* to those at *path*, which a test lives through."""
    rows = json.loads(path.read_text()) if path.exists() else []
    row = {
        "problem": life.problem.strip().splitlines()[-1][:100],
        "seed": life.job.shape.seed,
        "rounds": life.job.shape.rounds,
        "only": life.job.only,
        **({"single": True} if life.job.shape.is_single else {}),
    }
    path.write_text(json.dumps([*rows, row], indent=1) + "\n")


def command(job: Job) -> str:
    """Return the words that show *job* once more."""
    words = ["--seed", str(job.shape.seed), "--rounds", str(job.shape.rounds)]
    words += ["--busy", f"{job.shape.busy_s:g}", "--pause", f"{job.shape.pause_s:g}"]
    words += ["--every", f"{job.every_s:g}", *(["--single"] if job.shape.is_single else [])]
    if job.kinds is not None:
        words += ["--faults", ",".join(job.kinds)]
    if job.only is not None:
        words += ["--only", ",".join(map(str, job.only))]
    if job.defect is not None:
        words += ["--defect", job.defect]
    return "python tests/support/simulated/run.py " + " ".join(words)


def story(life: Lived) -> str:
    """Return what happened in a world, what was wrong then, and how to see it again."""
    return "\n".join(
        [
            f"seed {life.job.shape.seed}: {len(life.story)} faults",
            *(f"  {line}" for line in life.story),
            *(f"  {line}" for line in life.problem.strip().splitlines()[-20:]),
            f"  {command(life.job)}",
        ]
    )
