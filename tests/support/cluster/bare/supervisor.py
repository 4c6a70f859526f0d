"""Keeps the programs of a cluster without nodes up, as plain processes of whoever started it.

It ends, and they with it, when it is killed or when the process that the cluster belongs to has
ended: so a test run that was killed leaves no process behind, also where no other run follows.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.bare.state import Process

POLL_S = 0.2
# As systemd does it: a program that fails at once is not started in a hot loop.
RESTART_AFTER_S = 1.0
PR_SET_PDEATHSIG = 1
# These live for minutes, in which memory is cheaper than collecting garbage often.
GARBAGE = {"GOGC": "400"}
LIBC = ctypes.CDLL(None)


def main(plan: dict[str, Any]) -> None:
    """Write down who we are, then start the programs of *plan* again whenever they end."""
    os.chdir("/")
    record = Path(plan["record"])
    unfinished = record.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([asdict(Process.of(os.getpid()))]))
    unfinished.rename(record)
    owner = plan["owner"] and Process(**plan["owner"])
    programs, logs = plan["programs"], Path(plan["logs"])
    running: dict[str, subprocess.Popen[bytes]] = {}
    due = {program["name"]: 0.0 for program in programs}
    while owner is None or owner.is_alive:
        for program in programs:
            name = program["name"]
            if name in running and running[name].poll() is not None:
                code = running.pop(name).returncode
                print(f"{name} ended with {code} and is started again", flush=True)
                due[name] = time.monotonic() + RESTART_AFTER_S
            if name not in running and time.monotonic() >= due[name]:
                running[name] = _start(program, logs)
        time.sleep(POLL_S)
    print("the process that this cluster belongs to has ended", flush=True)


def _start(program: dict[str, Any], logs: Path) -> subprocess.Popen[bytes]:
    with (logs / f"{program['name']}.log").open("ab") as log:
        return subprocess.Popen(
            program["command"],
            env={**os.environ, **GARBAGE},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_us,  # noqa: PLW1509 - there is one thread
        )


def _end_with_us() -> None:
    # The kernel kills the program when its parent ends, however that ended.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
