"""Streams, consumers and connections of NATS JetStream, as this project uses them."""

from __future__ import annotations

import sys


def _import_client() -> None:
    # Where aiohttp is installed, nats-py imports it for WebSockets, which nothing here speaks: a
    # third of the CPU time that the start of one of our processes takes.
    if "aiohttp" in sys.modules or "nats" in sys.modules:
        return
    sys.modules["aiohttp"] = None  # type: ignore[assignment]  # its import fails
    try:
        import nats.aio.client  # noqa: F401
    finally:
        del sys.modules["aiohttp"]


_import_client()
