"""Pulls that end while a batch is in hand, as in batches of more than 30 seconds: the server then
does not tell their reader that the consumer was deleted.
"""

from __future__ import annotations

import pytest

from logpipeline.nats import pull
from logpipeline.nats.jetstream import JetStream
from waiting import eventually


def end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pulls of readers that are opened from now on end after half a second."""
    monkeypatch.setattr(pull, "PULL_EXPIRES_S", 0.5)
    monkeypatch.setattr(pull, "IDLE_HEARTBEAT_S", 0.1)


async def ended(js: JetStream, stream: str, consumer: str) -> None:
    """Wait until no pull of *consumer* waits at the server."""

    async def is_none_there() -> bool:
        return not (await js.call(f"CONSUMER.INFO.{stream}.{consumer}"))["num_waiting"]

    await eventually(is_none_there)
