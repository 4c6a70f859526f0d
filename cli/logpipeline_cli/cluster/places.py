"""Where the files of all collectors of a pipeline are, of those as well that are no more: decided
from the resource, its pods and its claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline.spec.components import Persistence
from logpipeline_operator.children import names
from logpipeline_operator.children.collectors import CLAIM, data_folder

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Running:
    """A collector that runs. *lost_below* is a folder in which those of former ones may be."""

    pod: str
    folder: str
    lost_below: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim that no running collector has open; *node* is where a pod that does not run holds
    it. *members* are the collectors whose folders are in it, each below the root or, alone, it.
    """

    claim: str
    member: str
    node: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are; *notes* say which cannot be reached."""

    running: tuple[Running, ...]
    claimed: tuple[Claimed, ...]
    notes: tuple[str, ...] = ()


def places(pipeline: LogPipeline, pods: Sequence[Manifest], claims: Sequence[Manifest]) -> Places:
    """Return where the files of *pipeline* are, given its collectors' *pods* and *claims*."""
    volume = pipeline.spec.collectors.persistence or Persistence()
    running = [_running(pipeline, volume, pod) for pod in _sorted(pods) if is_running(pod)]
    waiting = {_name(pod): pod for pod in pods if not is_running(pod)}
    seen = {place.pod for place in running}
    if volume.existing_claim:
        return _shared(pipeline, volume.existing_claim, running, waiting)
    if volume.host_path or volume.empty_dir is not None:
        return Places(tuple(running), (), _unreachable(waiting, volume))
    claimed, notes = [], []
    for claim in sorted(map(_name, claims), key=_number):
        member = claim.removeprefix(f"{CLAIM}-")
        if member in seen or not _is_member(pipeline, member):
            continue
        pod = waiting.get(member)
        node = str(pod["spec"].get("nodeName") or "") if pod is not None else ""
        if pod is not None and not node:
            notes.append(f"{member} has no node yet; its files are left out")
        else:
            claimed.append(Claimed(claim, member, node))
    return Places(tuple(running), tuple(claimed), tuple(notes))


def is_running(pod: Manifest, container: str = "collector") -> bool:
    """Return whether a program can be started in the pod's *container*."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(
        status.get("name") == container and "running" in (status.get("state") or {})
        for status in statuses
    )


def _running(pipeline: LogPipeline, volume: Persistence, pod: Manifest) -> Running:
    # The folder of a node is seen as a whole, with what other collectors left there.
    root = pipeline.spec.collectors.directory.rstrip("/") or "/"
    below = root if volume.host_path else ""
    return Running(_name(pod), data_folder(pipeline, _name(pod)), below)


def _shared(
    pipeline: LogPipeline, claim: str, running: list[Running], waiting: dict[str, Manifest]
) -> Places:
    """Return the places in a claim of all collectors: a pod sees its own folder alone."""
    holders = (str(pod["spec"].get("nodeName") or "") for pod in waiting.values())
    node = next((holder for holder in holders if holder), "")
    return Places(tuple(running), (Claimed(claim, names.collector(pipeline), node, True),))


def _unreachable(waiting: Iterable[str], volume: Persistence) -> tuple[str, ...]:
    kind = "spec.collectors.persistence.hostPath" if volume.host_path else "emptyDir"
    return tuple(f"{member} does not run; its files ({kind}) are left out" for member in waiting)


def _is_member(pipeline: LogPipeline, name: str) -> bool:
    return re.fullmatch(re.escape(names.collector(pipeline)) + r"-\d+", name) is not None


def _sorted(pods: Sequence[Manifest]) -> list[Manifest]:
    return sorted(pods, key=lambda pod: _number(_name(pod)))


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() else -1, name)


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
