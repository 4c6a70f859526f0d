"""Keeps the partitions shared among the collectors that run here, as the operator does in
Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logpipeline.assigning import ensure_assigned
from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


async def keep_assigned(
    bucket: Bucket,
    group: Callable[[], str],
    members: Callable[[], list[str]],
    *,
    partitions: int,
) -> None:
    """Keep the assignment of *group* as *members* wants it, for ever; both may change."""
    while True:
        try:
            await ensure_assigned(bucket, group(), members(), partitions=partitions)
        except (NotSent, OutcomeUnknown, ApiError, Conflict) as error:
            log.debug("could not look at the assignment", extra={"why": str(error)})
        await asyncio.sleep(CHECK_EVERY_S)
