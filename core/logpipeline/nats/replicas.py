"""Reads by direct get that do not take the word of a replica that lags."""

from __future__ import annotations

import asyncio
from typing import Any

from logpipeline.nats.jetstream import JetStream, StoredMessage

# A replica lags for less. What it lacks after that is gone.
LAG_S_MAX = 30.0
_LOOK_AGAIN_S = 0.2


async def certain_message(js: JetStream, stream: str, sequence: int) -> StoredMessage | None:
    """Return the message at *sequence* of *stream*, or None where it is gone: where replicas may
    lag, that is believed after `LAG_S_MAX`, or once the stream's leader does not count it either.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LAG_S_MAX
    while True:
        stored = await js.message(stream, sequence)
        if stored is not None:
            return stored
        info = await js.stream_info(stream)
        if info is None or not _may_lag(info, sequence) or loop.time() >= until_s:
            return None
        await asyncio.sleep(_LOOK_AGAIN_S)


def _may_lag(info: dict[str, Any], sequence: int) -> bool:
    """Return whether a replica that lags may lack the message at *sequence*."""
    state = info["state"]
    is_counted = int(state["first_seq"]) <= sequence <= int(state["last_seq"])
    return is_counted and int(info["config"]["num_replicas"]) > 1
