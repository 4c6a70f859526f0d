"""A message that a direct get does not find is gone only where no replica may lag. Servers whose
replicas lag are faked here: a real one catches up within milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from logpipeline.nats import replicas
from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.nats.replicas import certain_message

MESSAGE = StoredMessage("logs.p0.host", 5, 1, b"", b"line\n")


class LaggingServer:
    """A stream with the messages *first* to *last*; direct gets are answered by a replica that has
    the message after so many looks.
    """

    def __init__(
        self, *, replicas: int = 3, first: int = 1, last: int = 9, looks_until_there: float = 3
    ) -> None:
        self.looks = 0
        self._info = {
            "config": {"num_replicas": replicas},
            "state": {"first_seq": first, "last_seq": last},
        }
        self._looks_until_there = looks_until_there

    async def message(self, stream: str, sequence: int) -> StoredMessage | None:
        assert (stream, sequence) == ("LOGS", MESSAGE.sequence)
        self.looks += 1
        return MESSAGE if self.looks > self._looks_until_there else None

    async def stream_info(self, stream: str) -> dict[str, Any] | None:
        return self._info if stream == "LOGS" else None


async def look(server: LaggingServer) -> StoredMessage | None:
    """Look for the message."""
    return await certain_message(cast(JetStream, server), "LOGS", MESSAGE.sequence)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once."""
    monkeypatch.setattr(replicas, "_LOOK_AGAIN_S", 0.0)


async def test_a_message_that_a_replica_lacks_is_waited_for() -> None:
    """The leader counts it."""
    assert await look(LaggingServer()) == MESSAGE


@pytest.mark.parametrize("server", [{"replicas": 1}, {"first": 6}, {"last": 4}])
async def test_a_message_that_is_gone_is_not_waited_for(server: dict[str, int]) -> None:
    """Nothing lags, or the leader does not count it either."""
    lagging = LaggingServer(**server)

    assert await look(lagging) is None
    assert lagging.looks == 1


async def test_a_message_that_was_deleted_in_the_midst_is_gone_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader's first and last message do not show that."""
    monkeypatch.setattr(replicas, "LAG_S_MAX", 0.05)
    lagging = LaggingServer(looks_until_there=float("inf"))

    async with asyncio.timeout(60):
        assert await look(lagging) is None
    assert lagging.looks > 1
