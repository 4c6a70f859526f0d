"""The groups of collectors that the pipeline has. Answers to shippers name them, so that these do
not wait for a group that was deleted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.trim import groups_of, keys_of
from logpipeline.records import PROGRESS_GROUPS_MAX

log = logging.getLogger(__name__)

LOOK_EVERY_S = 30.0
# What was read before says nothing of a group that was made since.
STALE_S = 120.0


class GroupsWatch:
    """Looks from time to time which groups the state *bucket* names: those that trimming waits for,
    too.
    """

    def __init__(self, js: JetStream, bucket: Bucket) -> None:
        self._js = js
        self._bucket = bucket
        self._found: tuple[str, ...] = ()
        self._found_s = -math.inf

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                found = groups_of(await keys_of(self._js, self._bucket))
                self._found, self._found_s = tuple(sorted(found)), time.monotonic()
            except (NotSent, OutcomeUnknown, ApiError) as error:
                log.debug("the groups cannot be read", extra={"reason": str(error)})
            await asyncio.sleep(LOOK_EVERY_S)

    def current(self) -> tuple[str, ...]:
        """Return the groups; none where they are not known."""
        is_stale = time.monotonic() - self._found_s > STALE_S
        return () if is_stale or len(self._found) > PROGRESS_GROUPS_MAX else self._found
