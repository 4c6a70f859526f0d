"""Shares the partitions among the collectors that run here, as the operator does in Kubernetes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import Assignment, BadRecord, assign, assignment_key

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0


async def ensure_assigned(
    bucket: Bucket, group: str, members: list[str], *, partitions: int
) -> Assignment:
    """Return the group's assignment, written anew under the next generation if it is another.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the bucket could not be read or written.
        Conflict: somebody else assigns as well; look again.
    """
    entry = await bucket.get(assignment_key(group))
    generation, revision = 0, 0
    if entry is not None:
        revision = entry.revision
        try:
            current = Assignment.decode(entry.value)
        except BadRecord as error:
            log.warning("the assignment was unreadable, writing it anew", extra={"why": str(error)})
            # Above any generation that can have been written before.
            generation = entry.revision
        else:
            generation = current.generation
            if current == assign(members, partitions=partitions, generation=generation):
                return current
    wanted = assign(members, partitions=partitions, generation=generation + 1)
    await bucket.swap(assignment_key(group), wanted.encode(), revision=revision)
    shares = {name: str(owned) for name, owned in wanted.members}
    log.info("assigned partitions", extra={"generation": wanted.generation, **shares})
    return wanted


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
