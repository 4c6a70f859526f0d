"""Which clusters there are, who made them, and whether somebody still needs them.

A cluster's record is written before anything is started, so that whatever a killed creator left
behind is found and ended later.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.bare import places
from cluster.bare.running import ToolError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
# Set by tests: the cluster belongs to this process and is swept away once that has ended.
OWNER = "LOGPIPELINE_CLUSTER_OWNER"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is not taken for another one of the same id, nor across a reboot."""

    id: int
    started: str

    @classmethod
    def of(cls, process_id: int) -> Process:
        """Name the process that has this id now.

        Raises:
            ProcessLookupError: there is none.
        """
        try:
            stat = Path(f"/proc/{process_id}/stat").read_text()
        except OSError as error:
            raise ProcessLookupError(process_id) from error
        # The name in parentheses may hold anything; the 22nd field is the start, in ticks.
        started_ticks = stat.rsplit(")", 1)[1].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(process_id, f"{boot}/{started_ticks}")

    @property
    def is_alive(self) -> bool:
        """Whether it runs; one that has ended and is not yet collected does not."""
        try:
            is_same = Process.of(self.id) == self
            stat = Path(f"/proc/{self.id}/stat").read_text()
        except OSError:
            return False
        return is_same and stat.rsplit(")", 1)[1].split()[0] not in "ZX"


@dataclass(frozen=True, slots=True)
class Record:
    """What is written down of a cluster."""

    name: str
    number: int
    nodes: tuple[str, ...]
    owner: Process | None
    # Of the API server on loopback, where there are no nodes.
    port: int = 0


def check_name(name: str) -> str:
    """Return *name*, which becomes a folder's.

    Raises:
        ToolError: it cannot be one.
    """
    if not NAME.fullmatch(name):
        raise ToolError(f"{name!r} is no cluster's name: up to 40 of a-z, 0-9 and -")
    return name


def owner_from_environment() -> Process | None:
    """The process that the new cluster belongs to, if somebody named one."""
    process_id = os.environ.get(OWNER)
    try:
        return Process.of(int(process_id)) if process_id else None
    except (ValueError, ProcessLookupError) as error:
        raise ToolError(f"{OWNER}={process_id}: no such process") from error


def write(record: Record) -> None:
    """Write *record*, whole or not at all."""
    file = places.ClusterPlaces(record.name).record
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(record), indent=2))
    unfinished.rename(file)


def read(name: str) -> Record | None:
    """The record of the cluster of this name, if there is one."""
    try:
        found = json.loads(places.ClusterPlaces(name).record.read_text())
    except FileNotFoundError:
        return None
    owner = found["owner"] and Process(**found["owner"])
    return Record(
        found["name"], found["number"], tuple(found["nodes"]), owner, found.get("port", 0)
    )


def records() -> list[Record]:
    """All clusters, also those that were never finished."""
    folders = sorted((places.cache() / "clusters").glob("*/"))
    return [record for folder in folders if (record := read(folder.name))]


def is_abandoned(record: Record) -> bool:
    """Whether the process that it was made for has ended."""
    return record.owner is not None and not record.owner.is_alive
