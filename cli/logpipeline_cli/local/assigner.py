"""Keeps the partitions shared among the collectors that run here, as the operator does in
Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logpipeline.assigning import GroupTaken, ensure_assigned
from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.spec import LogPipeline

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


async def keep_assigned(
    bucket: Bucket, pipeline: Callable[[], LogPipeline], members: Callable[[], list[str]]
) -> None:
    """Keep the assignment of *pipeline*'s group as *members* wants it, for ever; both may
    change.
    """
    problem = ""
    while True:
        try:
            await ensure_assigned(bucket, pipeline(), members())
        except GroupTaken as error:
            if str(error) != problem:
                log.error("nothing is collected", extra={"why": str(error)})
            problem = str(error)
        except (NotSent, OutcomeUnknown, ApiError, Conflict) as error:
            log.debug("could not look at the assignment", extra={"why": str(error)})
        await asyncio.sleep(CHECK_EVERY_S)
