"""The cost of processes, from the kernel's own accounting."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_DEADLINE_S = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds since the process began, and the most memory it ever held, in bytes."""

    cpu_s: float
    rss_bytes: int


def cost_of(pid: int) -> Cost:
    """Return what the running process *pid* has cost so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    status = Path(f"/proc/{pid}/status").read_text()
    high_water = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return Cost(cpu_s, int(high_water.split()[1]) * 1024)


def cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds of process *pid* and of all that it started, the ended ones as well.

    What an ended one cost is known once its parent has waited for it.
    """
    fields = {int(path.name): _stat(path) for path in Path("/proc").glob("[0-9]*")}
    parents = {child: int(found[1]) for child, found in fields.items() if found}
    inside: set[int] = set()
    wave = {pid}
    while wave:
        inside |= wave
        wave = {child for child, parent in parents.items() if parent in wave} - inside
    # Its own time in user and system mode, and the same of children that it waited for.
    return sum(int(tick) for one in inside for tick in fields[one][11:15]) / _TICKS_PER_S


def _stat(path: Path) -> list[str]:
    try:
        return (path / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended meanwhile


def parent_of(pid: int) -> int:
    """Return the process that *pid* is a child of."""
    return int(_stat(Path(f"/proc/{pid}"))[1])


def stop(process: subprocess.Popen[bytes]) -> None:
    """End *process*, by force if it does not go by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
