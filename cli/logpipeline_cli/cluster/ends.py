"""Where a pipeline's files are to be asked for: in the pods of its collectors, and in pods that are
made to read what collectors left that are gone; and in the pods of its shippers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from logpipeline.observe.logs import printable
from logpipeline_cli.cluster.places import Claimed, Places, is_running, places
from logpipeline_cli.cluster.readers import FOLDER, readers
from logpipeline_cli.cluster.remote import FarEnd
from logpipeline_cli.cluster.session import Found
from logpipeline_cli.errors import CliError
from logpipeline_operator.children import config, names
from logpipeline_operator.children.shippers import DATA


@contextmanager
def collectors_of(found: Found, *, only_running: bool) -> Iterator[list[FarEnd]]:
    """Return the ends that have all files of the pipeline's collectors, while the block lasts.

    Raises:
        CliError: there are none.
    """
    seen = _places(found, only_running=only_running)
    for text in seen.notes:
        note(text)
    with _ends(found, seen) as ends:
        yield ends


def shippers_of(found: Found) -> list[FarEnd]:
    """Return the ends that have the log files of nodes: a running shipper each.

    Raises:
        CliError: there are none.
    """
    folders = {
        "file": str(config.FOLDER / config.FILE),
        "name": config.NODE_SHIPPER,
        "data": DATA,
    }
    kubectl, pipeline = found.cluster.kubectl, found.pipeline
    pods = [pod for pod in found.objects("pods", "shipper") if is_running(pod, "shipper")]
    ends = []
    for pod in sorted(pods, key=lambda pod: str(pod["spec"].get("nodeName"))):
        name = str(pod["metadata"]["name"])
        where = f"{pod['spec'].get('nodeName')} (pod {name})"
        words = kubectl.exec_words(pipeline.namespace, name, "shipper")
        ends.append(FarEnd(where, words, folders))
    if not ends:
        raise CliError(
            f"no shipper of {pipeline.name} runs on a node, and log files are read in its pod; "
            "what sidecars ship cannot be compared"
        )
    return ends


def note(text: str) -> None:
    """Print a remark to standard error, apart from the answer."""
    print(printable(text), file=sys.stderr)


def _places(found: Found, *, only_running: bool) -> Places:
    pods = found.objects("pods", "collector")
    claims = [] if only_running else found.objects("persistentvolumeclaims", "collector")
    seen = places(found.pipeline, pods, claims)
    if only_running:
        seen = Places(seen.running, (), seen.notes)
    if not seen.running and not seen.claimed:
        name = found.pipeline.name
        raise CliError(
            f"no collector of {name} runs, and none left a volume that can be read; see `kubectl "
            f"describe logpipeline {name} -n {found.pipeline.namespace}`"
        )
    return seen


@contextmanager
def _ends(found: Found, seen: Places) -> Iterator[list[FarEnd]]:
    kubectl, namespace = found.cluster.kubectl, found.pipeline.namespace
    prefix = f"{names.collector(found.pipeline)}-"
    members = [place.pod for place in seen.running]
    ends = []
    for place in seen.running:
        folders: dict[str, Any] = {"folders": {place.pod: place.folder}}
        if place.lost_below:
            below = {"folder": place.lost_below, "prefix": prefix, "without": members}
            folders["shared"] = below
        ends.append(FarEnd(place.pod, kubectl.exec_words(namespace, place.pod), folders))
    if seen.claimed:
        note(f"starting {len(seen.claimed)} pods to read what collectors left that are gone")
    with readers(found, seen.claimed) as made:
        for claimed, pod in made.items():
            folders = _folders(claimed, prefix, members)
            where = f"{claimed.claim} (by pod {pod})"
            ends.append(FarEnd(where, kubectl.exec_words(namespace, pod), folders))
        yield ends


def _folders(claimed: Claimed, prefix: str, members: list[str]) -> dict[str, Any]:
    if not claimed.is_shared:
        return {"folders": {claimed.member: FOLDER}}
    return {"folders": {}, "shared": {"folder": FOLDER, "prefix": prefix, "without": members}}
