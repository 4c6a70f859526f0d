"""The API servers of tests that need no node: one for all processes of a run, and more on request.

The first process that needs it makes it, and the run's own one ends it. If that is killed, so are
the programs (`cluster.bare.supervisor`), and the next cluster's creation takes the folder away.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import handle
from cluster.bare import binaries, creation, places, requirements, state
from cluster.bare.locking import locked
from cluster.bare.places import ClusterPlaces
from cluster.handle import Cluster

# The process of the run, which may have shared its tests out to others.
RUN = "LOGPIPELINE_TEST_RUN"
BUILD = "tests/cluster/kind build api"


def begin_run() -> None:
    """Be the process that this run's cluster belongs to."""
    os.environ[RUN] = str(os.getpid())


def end_run() -> None:
    """End this run's cluster, if somebody made one."""
    if state.read(_shared_name()) is not None:
        creation.delete(_shared_name())


def shared() -> Cluster:
    """This run's API server, which all its processes use."""
    _check()
    name = _shared_name()
    with locked(places.cache() / "locks" / f"run-{name}", what="starting the API server"):
        record = state.read(name)
        if record is None or not creation.is_usable(record):
            return _made(name)
    return _handle(ClusterPlaces(name))


@contextmanager
def another() -> Iterator[Cluster]:
    """An API server for one test alone."""
    _check()
    name = f"{_shared_name()}-{secrets.token_hex(4)}"
    try:
        yield _made(name)
    finally:
        creation.delete(name)


def _check() -> None:
    if reason := requirements.lacking(has_nodes=False):
        pytest.skip(reason)
    if not binaries.is_built(binaries.API):
        pytest.skip(f"the API server is not built yet: run {BUILD} (some minutes, once)")


def _made(name: str) -> Cluster:
    return _handle(creation.create(name, (), state.Process.of(int(os.environ[RUN]))))


def _handle(at: ClusterPlaces) -> Cluster:
    return handle.handle_of(Path(at.kubeconfig), state.read(at.name))


def _shared_name() -> str:
    return f"api-{os.environ[RUN]}"
