"""Ports that nobody else is given as long as this process runs.

A port that the kernel names is free only now: until its process listens on it, the kernel may give
it to another socket, and over hundreds of starts it does. These lie below those that it gives out,
and a lock on a file keeps other test runs off.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from logpipeline import ports

# Below those of the kernel (32768), and none that `logpipeline up` chooses for itself: it
# holds no lock, and took the port of a component that was killed and not yet started again. The
# parts of Kubernetes listen below.
PORTS = range(11_000, ports.PORTS.start)
# Closed by the end of the process, which gives the ports back.
_held: list[int] = []


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on at *address*, and that nobody else gets from here.

    Raises:
        AssertionError: all are taken.
    """
    # Of this user: nobody may open another one's locks.
    folder = Path(tempfile.gettempdir()) / f"logpipeline-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for port in random.sample(PORTS, len(PORTS)):
        lock = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
        if _locks(lock) and _is_free(address, port):
            _held.append(lock)
            return port
        os.close(lock)
    raise AssertionError("no port is free")


def _locks(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
