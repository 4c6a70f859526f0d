"""Where lines come from: the host, the container or the file that a program wrote them to."""

from __future__ import annotations

from typing import NamedTuple

from logpipeline.wire import Batch


class Origin(NamedTuple):
    """Origin of a message's lines; *path* is the wire's source, empty for a foreign message."""

    host: str
    namespace: str
    pod: str
    container: str
    path: str


def origin_of(host: str, batch: Batch | None) -> Origin:
    """Return the origin of *batch*; None is a message without our headers."""
    if batch is None:
        return Origin(host, "", "", "", "")
    namespace, pod, container = batch.namespace, batch.pod, batch.container
    if batch.format == "cri" and not pod:
        parts = batch.source.split("/")
        if len(parts) == 5:
            # <namespace>/<pod>/<pod uid>/<container>/<restart>
            namespace, pod, container = parts[0], parts[1], parts[3]
    return Origin(host, namespace, pod, container, batch.source)
