"""The first process of a node: gives it mounts and addresses of its own and keeps its programs up.

It is process 1 of a process namespace: whatever runs on the node ends with it, pods included. It is
started as a file of its own, in namespaces that are still bare, and so imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL_S = 0.05
# As systemd does it: a program that fails at once is not started in a hot loop.
RESTART_AFTER_S = 1.0
CONNECT_DEADLINE_S = 60.0


def main(plan: dict[str, Any]) -> None:
    """Set the node up as *plan* says, then start its programs again whenever they end."""
    _mount(plan["mounts"])
    _wait_for(Path("/proc/sys/net/ipv4/conf/eth0"))
    for command in plan["network"]:
        subprocess.run(command, check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _keep_running(plan["programs"], Path(plan["logs"]))


def _mount(own: dict[str, str]) -> None:
    for source, target in own.items():
        subprocess.run(["mount", "--bind", source, target], check=True)
    # Sockets and network namespaces of pods live below /run.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    # Mounts of volumes have to be seen by containers that mount their parent folder.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)


def _keep_running(programs: list[dict[str, Any]], logs: Path) -> None:
    running: dict[int, dict[str, Any]] = {}
    due = {program["name"]: 0.0 for program in programs}
    while True:
        for program in programs:
            if time.monotonic() >= due[program["name"]] and _is_awaited_there(program):
                due[program["name"]] = float("inf")
                running[_start(program, logs)] = program
        # Process 1 also inherits orphans: they are collected here as well.
        process, status = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
        if process == 0:
            time.sleep(POLL_S)
        elif ended := running.pop(process, None):
            code = os.waitstatus_to_exitcode(status)
            print(f"{ended['name']} ended with {code} and is started again", flush=True)
            due[ended["name"]] = time.monotonic() + RESTART_AFTER_S


def _is_awaited_there(program: dict[str, Any]) -> bool:
    return program["after"] is None or Path(program["after"]).exists()


def _start(program: dict[str, Any], logs: Path) -> int:
    # Not by subprocess: that collects, when it starts the next one, children that have ended, and
    # who waits for all of them never hears of it.
    log = str(logs / f"{program['name']}.log")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = program["command"]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=files)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + CONNECT_DEADLINE_S
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(f"no {path}: whoever started this node did not live to connect it")
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
