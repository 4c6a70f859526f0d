"""Ports of the loopback interface for processes that this one starts.

A port that the kernel names is free only now: until the process that it is for listens on it, the
kernel may give it to an outgoing connection. These lie below those that systems give out; a client
that keeps trying a port of that range, on which no server listens, one day gets it as its own
source port, and hears itself.
"""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
ATTEMPTS_MAX = 20


def free_port() -> int:
    """Return a port of `PORTS` on which no process listens.

    Raises:
        OSError: none of `ATTEMPTS_MAX` was free.
    """
    for port in random.sample(PORTS, ATTEMPTS_MAX):
        if is_free(port):
            return port
    raise OSError(f"found no free port between {PORTS.start} and {PORTS.stop}: set one")


def is_free(port: int) -> bool:
    """Whether a server could listen on *port*."""
    with socket.socket() as probe:
        # As servers do: connections that have just ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
