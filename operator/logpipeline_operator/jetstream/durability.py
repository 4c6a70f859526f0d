"""How often a pipeline's servers sync to disk: a user's own ones say so on a monitoring page."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from logpipeline.spec import LogPipeline
from logpipeline_operator.status import Sync

TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 1024 * 1024
_UNITS = (("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6))


async def sync_of(pipeline: LogPipeline) -> Sync:
    """Return how often the servers of *pipeline* sync to disk, or why that is not known."""
    nats = pipeline.spec.nats
    if not nats.servers:
        return Sync(interval=nats.managed.sync_interval)
    if nats.monitoring_url is None:
        return Sync(why_unknown="spec.nats.monitoringUrl is not set")
    url = f"{nats.monitoring_url.rstrip('/')}/jsz?config=1"
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiohttp.ClientSession() as session,
            session.get(url) as response,
        ):
            body = await response.content.read(ANSWER_BYTES_MAX)
            if response.status != 200:
                return Sync(why_unknown=f"{url} answers with status {response.status}")
        return sync_from(_object(body))
    except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
        return Sync(why_unknown=f"{url} could not be read: {str(error) or 'no answer in time'}")


def sync_from(page: dict[str, Any]) -> Sync:
    """Return what the server's page ``/jsz`` says."""
    config = page.get("config")
    if not isinstance(config, dict):
        return Sync(why_unknown="the monitoring page tells nothing of JetStream's configuration")
    if config.get("sync_always"):
        return Sync(interval="always")
    span = config.get("sync_interval")
    if not isinstance(span, int) or span <= 0:
        return Sync(why_unknown="the monitoring page tells no sync_interval")
    for unit, size in _UNITS:
        if span % size == 0:
            return Sync(interval=f"{span // size}{unit}")
    return Sync(interval=f"{span}ns")


def _object(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    return found if isinstance(found, dict) else {}
