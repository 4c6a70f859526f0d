"""Shares the partitions among a group's collectors, where collectors read it."""

from __future__ import annotations

import logging

from logpipeline.nats.bucket import Bucket
from logpipeline.records import Assignment, BadRecord, assign, assignment_key

log = logging.getLogger(__name__)


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
