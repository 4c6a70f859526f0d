"""Programs that tests build from Go modules, once for each state of their sources.

As a program it builds those that are named: `python tests/support/go_programs.py nats`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.bare.locking import locked

TESTS = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "logpipeline-go"
BUILT_WITHIN_S = 3600
# A compiler lives for seconds: collecting its garbage below this size costs more than memory does.
COMPILER = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "1GiB"}


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A *package* of the module in the folder *module*, whose go.sum pins what it is made of."""

    module: Path
    package: str = "."


PROGRAMS = {
    # Writes its input by lumberjack, which rotates.
    "lumberjack": GoProgram(TESTS / "faults" / "rotating"),
    # NATS' own command line.
    "nats": GoProgram(TESTS / "live" / "nats_cli", "github.com/nats-io/natscli/nats"),
    # Prometheus' engine, for expressions of alerts.
    "promql": GoProgram(TESTS / "live" / "promql"),
    # Built by a soak alone: it is large.
    "loki": GoProgram(TESTS / "live" / "loki", "github.com/grafana/loki/v3/cmd/loki"),
    # The oldest server that is taken, `server_binary.VERSION_MIN`.
    "nats-server": GoProgram(
        TESTS / "faults" / "oldest_server", "github.com/nats-io/nats-server/v2"
    ),
}


def built(name: str) -> str:
    """Return the path of the program *name* of `PROGRAMS`; it is built once. Without Go, skip the
    test.
    """
    if shutil.which("go") is None:
        pytest.skip(f"Go is not installed: {name} is built by it, see go.dev/dl")
    program = PROGRAMS[name]
    digest = hashlib.sha256()
    for source in sorted(program.module.iterdir()):
        digest.update(source.read_bytes())
    target = CACHE / digest.hexdigest()[:16] / name
    # Of its own: a test that needs one program does not wait for the modules of another.
    with locked(CACHE / f"{name}.lock", what=f"building {name}"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_suffix(".unfinished")
            options = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"]
            subprocess.run(
                ["go", "build", *options, "-o", str(unfinished), program.package],
                cwd=program.module,
                env={**os.environ, **COMPILER},
                check=True,
                timeout=BUILT_WITHIN_S,
            )
            unfinished.rename(target)
    return str(target)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(built(wanted))
