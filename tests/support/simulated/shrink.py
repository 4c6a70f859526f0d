"""Find the fewest faults with which a world still fails:

python tests/support/simulated/shrink.py --seed 7 --hours 1
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RUN = Path(__file__).with_name("run.py")


def shrunk(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return the fewest of *numbers* that this way finds with which *fails* holds, as it does for
    all of them.
    """
    kept, parts = list(numbers), 2
    while len(kept) > 1:
        size = max(1, len(kept) // parts)
        for at in range(0, len(kept), size):
            fewer = kept[:at] + kept[at + size :]
            if fails(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return kept


def lived(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return what a world says, and the last line of it."""
    done = subprocess.run([sys.executable, str(RUN), *words], capture_output=True, text=True)
    *_, last = done.stdout.splitlines() or [""]
    assert last.startswith("{"), done.stdout + done.stderr
    return done.stdout, json.loads(last)


def main() -> int:
    """Print the story of the shortest history that fails, and how to see it again."""
    words = sys.argv[1:]
    _, whole = lived(words)

    def fails(numbers: Sequence[int]) -> bool:
        _, said = lived([*words, "--only", ",".join(map(str, numbers))])
        is_bad = bool(said["problem"] or said.get("lost") or said.get("twice"))
        print(f"{len(numbers)} faults: {'fails' if is_bad else 'passes'}", flush=True)
        return is_bad

    everything = list(range(whole["planned"]))
    if not fails(everything):
        print("this world is as it should be")
        return 0
    kept = shrunk(everything, fails)
    only = ["--only", ",".join(map(str, kept))]
    print(lived([*words, *only])[0])
    print("python", RUN.relative_to(Path.cwd()), *words, *only)
    return 1


if __name__ == "__main__":
    sys.exit(main())
