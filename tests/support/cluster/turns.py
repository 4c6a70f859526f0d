"""Who uses a cluster's operator at the moment, among the processes of a test run and of other runs
on the same cluster: many share one that watches all namespaces, and a test that installs an
operator of its own is alone, for two of them would make the same pipelines.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cluster.bare import places
from cluster.bare.locking import locked
from cluster.handle import Cluster


@contextmanager
def shared(cluster: Cluster) -> Iterator[None]:
    """Use the operator of all meanwhile, beside others who do."""
    with _held(cluster, fcntl.LOCK_SH):
        yield


@contextmanager
def alone(cluster: Cluster) -> Iterator[None]:
    """Wait until no one uses the operator of all, and keep others from it meanwhile."""
    with _held(cluster, fcntl.LOCK_EX):
        yield


@contextmanager
def alone_if_free(cluster: Cluster) -> Iterator[bool]:
    """Be alone where that takes no waiting, and yield whether it is so."""
    with _opened(cluster) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            is_alone = False
        yield is_alone


@contextmanager
def installing(cluster: Cluster) -> Iterator[None]:
    """Let one process at a time install or upgrade the operator of all."""
    with locked(_file(cluster, "installing"), what="installing the operator"):
        yield


@contextmanager
def _held(cluster: Cluster, kind: int) -> Iterator[None]:
    with _opened(cluster) as handle:
        fcntl.flock(handle, kind)
        yield


def _opened(cluster: Cluster) -> TextIO:
    # The kernel frees its lock when the holder dies.
    file = _file(cluster, "using")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("a")


def _file(cluster: Cluster, what: str) -> Path:
    # A kubeconfig may be copied: the address is the cluster's own.
    digest = hashlib.sha256(cluster.api.url.encode()).hexdigest()[:16]
    return places.cache() / "locks" / f"operator-{digest}.{what}"
