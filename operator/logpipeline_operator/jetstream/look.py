"""One look at a pipeline's JetStream: plan, apply, share the partitions out, trim, and survey."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from logpipeline.assigning import GroupTaken, ensure_assigned
from logpipeline.behind import Behind
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NoResponders
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.apply import Report, apply
from logpipeline.plan.model import Plan, Problem
from logpipeline.plan.planner import plan_pipeline
from logpipeline.plan.trim import trim_once
from logpipeline.records import Assignment, BadRecord, assignment_key
from logpipeline.spec import LogPipeline
from logpipeline.survey import PartitionState, survey
from logpipeline.tables.standing import TableState, table_of
from logpipeline_operator.callout.refusals import Refusals
from logpipeline_operator.jetstream.behind import behind
from logpipeline_operator.jetstream.logins import refusals
from logpipeline_operator.jetstream.removal import forget_table


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamSeen:
    """What a look found and did; *report* is None where nothing may be changed."""

    plan: Plan
    report: Report | None
    assignment: Assignment | None
    # When the assignment was written, in the server's time.
    assigned_ns: int = 0
    partitions: tuple[PartitionState, ...] = ()
    behind: tuple[Behind, ...] = ()
    # Of each callout beside a managed server.
    refused_logins: tuple[Refusals, ...] = ()
    # None where there shall be no table.
    table: TableState | None = None

    def commit_ages_s(self, now_ns: int) -> dict[int, float]:
        """Return the seconds since each partition's last commit, where there was one."""
        return {
            state.partition: max(0.0, (now_ns - state.committed_ns) / 1e9)
            for state in self.partitions
            if state.committed_ns
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a look may change."""

    may_write: bool
    allow_data_loss: bool = False
    installation: str = ""
    storage_bytes: int | None = None


async def look(
    js: JetStream,
    pipeline: LogPipeline,
    permission: Permission,
    members: Callable[[Sequence[str]], list[str]],
) -> JetStreamSeen:
    """Make JetStream what *pipeline* says, as far as permitted, and return how it is then.

    *members* returns who shares the partitions, given who does so now.

    Raises:
        JetStreamOff, NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    plan = await plan_pipeline(
        js,
        pipeline,
        storage_bytes=permission.storage_bytes,
        installation=permission.installation,
    )
    report = None
    if permission.may_write:
        report = await apply(js, plan, allow_data_loss=permission.allow_data_loss)
    bucket = Bucket(js, pipeline.names.state_bucket)
    try:
        entry = await _assigned(bucket, pipeline)
    except NoResponders:
        if await js.stream_info(bucket.stream) is not None:
            raise
        # It is made with the streams: what the plan or the report tells stood in the way, and must
        # not be hidden by the silence of a bucket that is not there.
        return JetStreamSeen(plan=plan, report=report, assignment=None)
    if permission.may_write and report is not None and not plan.blocking:
        try:
            entry = await _share_out(bucket, pipeline, entry, members, permission.installation)
        except GroupTaken as error:
            plan = replace(plan, problems=(*plan.problems, Problem("group-taken", str(error))))
        await trim_once(js, pipeline)
        if pipeline.spec.stream.external and not pipeline.spec.table.enabled:
            # Their owner would keep what a table that is no longer kept has not read.
            await forget_table(js, pipeline)
    partitions, late, refused = await asyncio.gather(
        survey(js, pipeline),
        behind(js.connection, pipeline),
        refusals(js.connection, pipeline),
    )
    return JetStreamSeen(
        plan=plan,
        report=report,
        assignment=_decoded(entry),
        assigned_ns=entry.time_ns if entry else 0,
        partitions=tuple(partitions),
        behind=late,
        refused_logins=refused,
        table=await table_of(js, pipeline, partitions) if pipeline.spec.table.enabled else None,
    )


async def _share_out(
    bucket: Bucket,
    pipeline: LogPipeline,
    entry: Entry | None,
    members: Callable[[Sequence[str]], list[str]],
    installation: str,
) -> Entry | None:
    former = _decoded(entry)
    wanted = members([name for name, _ in former.members] if former else [])
    if not wanted:
        return entry
    try:
        made = await ensure_assigned(bucket, pipeline, wanted, installation=installation)
    except Conflict:
        # Somebody else was faster; the next look compares again.
        return entry
    return entry if made == former else await _assigned(bucket, pipeline)


async def _assigned(bucket: Bucket, pipeline: LogPipeline) -> Entry | None:
    try:
        return await bucket.get(assignment_key(pipeline.spec.collectors.group))
    except ApiError as error:
        if error.code == 404:
            # The bucket is made with the streams.
            return None
        raise


def _decoded(entry: Entry | None) -> Assignment | None:
    try:
        return Assignment.decode(entry.value) if entry else None
    except BadRecord:
        return None
