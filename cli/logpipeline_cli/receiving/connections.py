"""Accepts connections by itself, so that each is counted from when it takes a descriptor: before a
handshake of TLS, which a stranger may never finish.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from logpipeline.observe.metrics import Metrics

# A peer whose machine is gone says nothing: its connection ends after some two minutes.
KEEP_ALIVE_IDLE_S = 60
KEEP_ALIVE_EACH_S = 15
KEEP_ALIVE_TRIES = 4
# For a handshake of TLS.
HANDSHAKE_S_MAX = 10.0
# As asyncio waits where no descriptor is free.
ACCEPT_AGAIN_S = 1.0
BACKLOG = 128

_LACKING = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
# Their names differ between systems.
_KEEP_ALIVE = {
    "TCP_KEEPIDLE": KEEP_ALIVE_IDLE_S,
    "TCP_KEEPALIVE": KEEP_ALIVE_IDLE_S,
    "TCP_KEEPINTVL": KEEP_ALIVE_EACH_S,
    "TCP_KEEPCNT": KEEP_ALIVE_TRIES,
}

log = logging.getLogger(__name__)


class ConnectionLimit:
    """At most *most* connections at once, which users know as *name*: others are closed and counted
    in *metrics*, and the first one of them is logged.
    """

    def __init__(self, most: int, name: str, metrics: Metrics) -> None:
        self._most = most
        self._name = name
        self._refused = metrics.counter(
            "refused_connections", f"Connections beyond {name}, closed at once."
        )
        self._has_refused = False

    def admits(self, accepted: socket.socket, there: int) -> bool:
        """Return whether *accepted* may stay beside those that are *there*; else close it."""
        if there < self._most:
            return True
        accepted.close()
        self._refused.labels().inc()
        if not self._has_refused:
            self._has_refused = True
            extra = {"limit": self._most}
            log.warning("connections beyond %s are closed", self._name, extra=extra)
        return False


def listening_at(address: tuple[str, int]) -> list[socket.socket]:
    """Return sockets that listen at each address that the host of *address* has, but those that
    this machine lacks: `localhost` may be `::1`, too, where there is no IPv6.

    Raises:
        OSError: one of the others cannot be listened on, or there is none.
    """
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            try:
                made.append(socket.create_server(where, family=family, backlog=BACKLOG))
            except OSError as error:
                if error.errno not in _LACKING:
                    raise
                lacking = error
                continue
            made[-1].setblocking(False)
        if lacking is not None and not made:
            raise lacking
    except OSError:
        for each in made:
            each.close()
        raise
    return made


async def accept(listening: socket.socket, take: Callable[[socket.socket], None]) -> None:
    """Give each connection of *listening* to *take*, until cancelled."""
    loop = asyncio.get_running_loop()
    is_failing = False
    while True:
        try:
            accepted, _ = await loop.sock_accept(listening)
        except OSError as error:
            # Those that wait are accepted later.
            if not is_failing:
                log.warning("no connection can be accepted", extra={"reason": str(error)})
            is_failing = True
            await asyncio.sleep(ACCEPT_AGAIN_S)
            continue
        is_failing = False
        _keep_alive(accepted)
        take(accepted)
        # While another one waits, accepting lets nothing else run.
        await asyncio.sleep(0)


def _keep_alive(accepted: socket.socket) -> None:
    # The peer may have reset it already.
    with suppress(OSError):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            option = getattr(socket, name, None)
            if option is not None:
                accepted.setsockopt(socket.IPPROTO_TCP, option, value)
