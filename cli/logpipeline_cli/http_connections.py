"""Connections of an HTTP server: one that asks nothing is closed, and keeps no other one out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

# A request's header comes at once, or in some packets over a slow line.
HEADER_S_MAX = 30.0
# Above the limit of uvicorn a request is told to come later; above so many times the limit its
# connection is closed unanswered, since each takes a descriptor.
UNANSWERED_FROM = 2


class BoundedConnection(H11Protocol):
    """A connection of uvicorn's server with a limit for the time that a header takes: uvicorn has
    one between two requests, and none before the first and within a header.
    """

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it if there are too many."""
        super().connection_made(transport)
        limit = self.limit_concurrency
        if limit is not None and len(self.connections) > UNANSWERED_FROM * limit:
            transport.abort()
        else:
            self._await_header()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif _is_over(before):
            self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the connection go."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_header(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_S_MAX, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _is_over(cycle: RequestResponseCycle | None) -> bool:
    return cycle is None or cycle.response_complete
