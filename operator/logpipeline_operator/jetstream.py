"""A pipeline's JetStream: applies the plan, assigns the partitions, observes the state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from logpipeline import json_text
from logpipeline.authority import CALLOUT
from logpipeline.backlog import ShipperBacklog, decode, question
from logpipeline.consuming.missed_records import missed_by_readers
from logpipeline.group.assignment import GroupTaken, ensure_assigned
from logpipeline.lag import PartitionState, survey
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import Connection, gather
from logpipeline.nats.jetstream import ApiError, JetStream, NoStream
from logpipeline.nats.session import RawMessage
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.model import Problem
from logpipeline.plan.removal import forget_table
from logpipeline.records import Assignment, BadRecord, assignment_key
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects
from logpipeline.tables.state import table_of
from logpipeline_operator.callout.refusals import Refusals
from logpipeline_operator.status import JetStreamFacts, Sync

TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 1024 * 1024
_UNITS = (("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6))

# If more nodes are behind, their exact number no longer matters.
ANSWERS_MAX = 2000
# Together; a node that lies must not fill the memory of the operator of all pipelines.
ANSWERS_BYTES_MAX = 16 * 1024 * 1024

# A cluster has three servers, with a callout each.
LOGIN_ANSWERS_MAX = 16


async def sync_of(pipeline: LogPipeline) -> Sync:
    """Return how often the servers of *pipeline* sync to disk, or why it is not known."""
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
            # The class allows the host of this URL, and not one that its answer names.
            session.get(url, allow_redirects=False) as response,
        ):
            body = await response.content.read(ANSWER_BYTES_MAX)
            if response.status != 200:
                return Sync(why_unknown=f"{url} answers with status {response.status}")
        return sync_from(_object(body))
    except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
        return Sync(why_unknown=f"{url} could not be read: {str(error) or 'no answer in time'}")


def sync_from(page: dict[str, Any]) -> Sync:
    """Return the interval in the server's page ``/jsz``."""
    config = page.get("config")
    if not isinstance(config, dict):
        return Sync(why_unknown="the monitoring page does not have JetStream's configuration")
    if config.get("sync_always"):
        return Sync(interval="always")
    span = config.get("sync_interval")
    if not isinstance(span, int) or span <= 0:
        return Sync(why_unknown="the monitoring page does not have sync_interval")
    for unit, size in _UNITS:
        if span % size == 0:
            return Sync(interval=f"{span // size}{unit}")
    return Sync(interval=f"{span}ns")


def _object(body: bytes) -> dict[str, Any]:
    found = json_text.parse(body)
    return found if isinstance(found, dict) else {}


async def behind(connection: Connection, pipeline: LogPipeline) -> tuple[ShipperBacklog, ...]:
    """Return the answers of shippers that are behind, or have a problem, in the order of their
    names: one for each problem that was reported under a name.

    Raises:
        NotSent: there is no connection.
    """
    if not pipeline.spec.shippers.enabled:
        return ()
    answers: dict[tuple[str, str], ShipperBacklog] = {}
    kept_bytes = 0

    # Nothing proves the name in an answer: two shippers may have the same, and a node that lies may
    # use another one's. So an answer adds to what was said under its name, and replaces nothing.
    def keep(message: RawMessage) -> None:
        nonlocal kept_bytes
        answer = decode(message.data)
        if answer is None or not (answer.problem or answer.hosts):
            return
        said = answer.name, answer.problem
        former = answers.get(said)
        if former is not None:
            answers[said] = replace(answer, hosts=_longest(former.hosts, answer.hosts))
        elif len(answers) < ANSWERS_MAX and kept_bytes + len(message.data) <= ANSWERS_BYTES_MAX:
            answers[said] = answer
            kept_bytes += len(message.data)

    subject = ControlSubjects(pipeline.names.control_subject).status("shipper")
    await gather(connection, [subject], question(), keep)
    return tuple(answers[said] for said in sorted(answers))


def _longest(
    one: Mapping[str, tuple[int, float]], other: Mapping[str, tuple[int, float]]
) -> dict[str, tuple[int, float]]:
    """Return the hosts of both, each with what has waited for longer."""
    nothing = 0, 0.0
    return {
        host: max(one.get(host, nothing), other.get(host, nothing), key=lambda waits: waits[1])
        for host in one.keys() | other.keys()
    }


async def refusals(connection: Connection, pipeline: LogPipeline) -> tuple[Refusals, ...]:
    """Return the refused logins that the callouts of the pipeline's servers report.

    Raises:
        NotSent: there is no connection.
    """
    if pipeline.spec.nats.servers:
        return ()
    answers: dict[str, Refusals] = {}

    def keep(message: RawMessage) -> None:
        answer = Refusals.decode(message.data)
        if answer is not None and len(answers) < LOGIN_ANSWERS_MAX:
            answers[answer.name] = answer

    subject = ControlSubjects(pipeline.names.control_subject).status(CALLOUT)
    await gather(connection, [subject], b"", keep)
    return tuple(answers[name] for name in sorted(answers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The changes to JetStream that are allowed."""

    may_write: bool
    allow_data_loss: bool = False
    installation: str = ""
    storage_bytes: int | None = None


async def reconcile(
    js: JetStream,
    pipeline: LogPipeline,
    permission: Permission,
    members: Callable[[Sequence[str]], list[str]],
) -> JetStreamFacts:
    """Make JetStream as *pipeline* asks, as far as permitted, and return its state.

    *members* returns the collectors that share the partitions, given the current ones.

    Raises:
        JetStreamOff, NotSent, OutcomeUnknown, ApiError: the server refused or did not answer.
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
        entry = await js.direct_get(bucket.stream, _assigned(bucket, pipeline))
    except NoStream:
        # The bucket is made with the streams. Plan and report have the cause that it is missing;
        # the error of a request to it must not hide them.
        return JetStreamFacts(plan=plan, report=report, assignment=None)
    is_blocked = bool(plan.blocking)
    # Partitions that are shared out already are not left with collectors that are gone, or go.
    if permission.may_write and (not is_blocked or _has_shared_out(entry, pipeline)):
        try:
            entry = await _share_out(bucket, pipeline, entry, members, permission.installation)
        except GroupTaken as error:
            plan = replace(plan, problems=(*plan.problems, Problem("group-taken", str(error))))
    is_guest = pipeline.spec.stream.external and not pipeline.spec.table.enabled
    if permission.may_write and is_guest and not is_blocked:
        # Else the owner of the streams would keep lines for a table that no longer exists.
        await forget_table(js, pipeline)
    partitions, late, refused, missed = await asyncio.gather(
        survey(js, pipeline),
        behind(js.connection, pipeline),
        refusals(js.connection, pipeline),
        missed_by_readers(js, bucket),
    )
    return JetStreamFacts(
        plan=plan,
        report=report,
        assignment=_decoded(entry),
        partitions=tuple(partitions),
        commit_ages_s=_commit_ages_s(partitions, time.time_ns()),
        behind=late,
        refused_logins=refused,
        readers_missed=sum(record.messages for _, record in missed),
        table=await table_of(js, pipeline, partitions) if pipeline.spec.table.enabled else None,
    )


def _commit_ages_s(partitions: Iterable[PartitionState], now_ns: int) -> dict[int, float]:
    return {
        state.partition: max(0.0, (now_ns - state.committed_ns) / 1e9)
        for state in partitions
        if state.committed_ns
    }


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
        # Another writer was faster; the next reconciliation compares again.
        return entry
    return entry if made == former else await _assigned(bucket, pipeline)


def _has_shared_out(entry: Entry | None, pipeline: LogPipeline) -> bool:
    """Return whether the assignment is that of *pipeline*, for the partitions that it has now."""
    assignment = _decoded(entry)
    return (
        assignment is not None
        and assignment.pipeline.partition("@")[0] == f"{pipeline.namespace}/{pipeline.name}"
        and assignment.partitions == pipeline.spec.partitions
    )


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
