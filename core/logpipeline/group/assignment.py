"""The assignment of partitions to a group's collectors, in the state bucket."""

from __future__ import annotations

import logging
from dataclasses import replace

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.model import INSTALLATION_KEY, OWNER_KEY, Config, is_ours
from logpipeline.records import (
    Assignment,
    BadRecord,
    assign,
    assignment_key,
    epoch_root,
    member_key,
)
from logpipeline.spec import LogPipeline
from logpipeline.subjects import key_value_subject

log = logging.getLogger(__name__)


class GroupTaken(Exception):
    """Another pipeline assigns the group's partitions; two would overwrite each other for ever."""

    def __init__(self, group: str, pipeline: str) -> None:
        super().__init__(
            f"the group {group} of these streams belongs to LogPipeline {pipeline}: create this "
            "one with another spec.collectors.group, or, if that one is gone, take its group over "
            "with spec.stream.adopt"
        )


async def ensure_assigned(
    bucket: Bucket, pipeline: LogPipeline, members: list[str], *, installation: str = ""
) -> Assignment:
    """Return the assignment of *pipeline*'s group, written anew under the next generation if it
    changed. *installation* distinguishes pipelines of the same name in two clusters.

    Raises:
        GroupTaken: another pipeline assigns the group.
        NotSent, OutcomeUnknown, ApiError: the bucket could not be read or written.
        Conflict: another process assigns as well; look again.
    """
    group, partitions = pipeline.spec.collectors.group, pipeline.spec.partitions
    who = _who(pipeline, installation)
    entry = await bucket.get(assignment_key(group))
    if entry is None:
        # The key may have been lost alone, and what stands in epoch records must not be newer. Each
        # assignment was a write, so that none had a number above the last revision.
        generation, revision = await bucket.last_revision(), 0
    else:
        revision = entry.revision
        try:
            current = Assignment.decode(entry.value)
        except BadRecord as error:
            log.warning("the assignment was unreadable, writing it anew", extra={"why": str(error)})
            # Above any generation that can have been written before.
            generation = entry.revision
        else:
            if not (_is_same(current.pipeline, who) or pipeline.spec.stream.adopt):
                raise GroupTaken(group, current.pipeline.partition("@")[0])
            generation = current.generation
            if current == assign(
                members, partitions=partitions, generation=generation, pipeline=who
            ):
                return current
    wanted = assign(members, partitions=partitions, generation=generation + 1, pipeline=who)
    await bucket.swap(assignment_key(group), wanted.encode(), revision=revision)
    shares = {name: str(owned) for name, owned in wanted.members}
    log.info("assigned partitions", extra={"generation": wanted.generation, **shares})
    return wanted


async def forget_group(js: JetStream, pipeline: LogPipeline, *, installation: str = "") -> bool:
    """Delete what the bucket and the snapshots know of *pipeline*'s group, so that nothing is kept
    for it any more; return False where the group is another pipeline's, or was never assigned.

    Raises:
        NotSent, OutcomeUnknown, ApiError, Conflict: not all is deleted; the next call goes on.
    """
    names, group = pipeline.names, pipeline.spec.collectors.group
    bucket = Bucket(js, names.state_bucket)
    entry = await bucket.get(assignment_key(group))
    if entry is None:
        return False
    try:
        current = Assignment.decode(entry.value)
    except BadRecord:
        return False
    if not _is_same(current.pipeline, _who(pipeline, installation)):
        return False
    # Collectors that still run let go, and take nothing over again.
    empty = replace(current, generation=current.generation + 1, members=())
    await bucket.swap(assignment_key(group), empty.encode(), revision=entry.revision)
    everything = [
        (names.snapshot_stream, f"{names.snapshot_subject}.{group}.>"),
        (bucket.stream, key_value_subject(bucket.name, f"{epoch_root(group)}.>")),
        (bucket.stream, key_value_subject(bucket.name, member_key(group, ">"))),
        # It goes last: by it, the next call knows whose group it is.
        (bucket.stream, key_value_subject(bucket.name, assignment_key(group))),
    ]
    for stream, subjects in everything:
        await js.call(f"STREAM.PURGE.{stream}", {"filter": subjects})
    return True


def _who(pipeline: LogPipeline, installation: str) -> str:
    name = f"{pipeline.namespace}/{pipeline.name}"
    return f"{name}@{installation}" if installation else name


def _is_same(there: str, who: str) -> bool:
    """Return whether both name one pipeline; an assignment of an older version names none."""
    return not there or is_ours(_marked(there), _marked(who))


def _marked(who: str) -> Config:
    """Return the metadata that a stream of *who* has: one rule decides about both."""
    name, _, installation = who.partition("@")
    return {"metadata": {OWNER_KEY: name, INSTALLATION_KEY: installation}}
