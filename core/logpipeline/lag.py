"""Lag and state of each partition, from streams and state bucket alone: every component may be
stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream, time_ns_of
from logpipeline.nats.scan import DirectGets, following
from logpipeline.plan.observe import stored_subjects
from logpipeline.records import (
    SUCCESSION_HEADER,
    Assignment,
    BadRecord,
    EpochRecord,
    GoneFolder,
    assignment_key,
    epoch_key,
)
from logpipeline.spec import LogPipeline
from logpipeline.subjects import BadHost, BadSubject, Subjects

# What the server itself calls a lost peer is silent for twice as long.
REPLICA_SILENT_NS = 5 * 10**9
# Raft entries, each of which is a message or more.
REPLICA_LAG_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as a group of collectors stands in it. *committed* is the last message of the
    partition that is; up to *read_to* its stream has no other one. *lag_bytes* is taken from mean
    sizes, *committed_ns* is the server's time of the last commit, 0 before the first. *lost_bytes*
    are those that shippers named as lost, *missing_bytes* those in holes that may still be filled.
    """

    partition: int
    stream: str
    is_there: bool
    messages: int = 0
    bytes: int = 0
    last_sequence: int = 0
    assigned: str = ""
    owner: str = ""
    released: bool = False
    epoch: int = 0
    committed: int = 0
    read_to: int = 0
    committed_ns: int = 0
    rollbacks: int = 0
    lost_bytes: int = 0
    missing_bytes: int = 0
    # Folders of collected lines that were missing when their collectors came back.
    gone: tuple[GoneFolder, ...] = ()
    lag_messages: int = 0
    lag_bytes: int = 0
    lag_s: float = 0.0
    # Servers that do not keep up with the stream; none where there is no other replica.
    replicas_behind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """Messages of one stream that its reader has not processed yet; *bytes* is taken from their
    mean size, *age_s* is the age of the oldest one.
    """

    messages: int
    bytes: int
    age_s: float


def lag_of(done: int, state: Mapping[str, Any]) -> StreamLag:
    """Return what lies behind the message *done* in a stream whose *state* the server reports,
    without the age.
    """
    unread = max(0, int(state["last_seq"]) - max(done, int(state["first_seq"]) - 1))
    return lag_of_messages(min(unread, int(state["messages"])), state)


def lag_of_messages(messages: int, state: Mapping[str, Any]) -> StreamLag:
    """Return the lag of so many messages of a stream whose *state* the server reports, without the
    age.
    """
    mean = int(state["bytes"]) / int(state["messages"]) if state["messages"] else 0.0
    return StreamLag(messages=messages, bytes=int(messages * mean), age_s=0.0)


async def survey(js: JetStream, pipeline: LogPipeline) -> list[PartitionState]:
    """Return the state of each partition.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    group = pipeline.spec.collectors.group
    assignment = await _assignment(bucket, group)
    partitions = range(max(pipeline.spec.partitions, 1))
    if pipeline.is_single_stream:
        return await _survey_single(js, bucket, pipeline, assignment, partitions)
    return list(
        await asyncio.gather(
            *(_survey_one(js, bucket, pipeline, assignment, number) for number in partitions)
        )
    )


async def _survey_one(
    js: JetStream,
    bucket: Bucket,
    pipeline: LogPipeline,
    assignment: Assignment | None,
    partition: int,
) -> PartitionState:
    stream = pipeline.names.stream(partition)
    info = await js.stream_info(stream)
    assigned = (assignment.owner(partition) if assignment else None) or ""
    if info is None:
        return PartitionState(partition=partition, stream=stream, is_there=False, assigned=assigned)
    state = info["state"]
    record, committed_ns = await _record(bucket, pipeline.spec.collectors.group, partition)
    committed = record.position.sequence if record else 0
    lag = lag_of(committed, state)
    if lag.messages:
        lag = replace(lag, age_s=await age_s_of(js, stream, committed, state))
    return _state(partition, info, state, assigned, record, committed_ns, lag)


async def _survey_single(
    js: JetStream,
    bucket: Bucket,
    pipeline: LogPipeline,
    assignment: Assignment | None,
    partitions: Iterable[int],
) -> list[PartitionState]:
    """Return the state of each of *partitions*, which one stream holds: how many messages it has of
    each, and how many of these are not committed.
    """
    subjects = pipeline.subjects
    stream, group = pipeline.names.stream(0), pipeline.spec.collectors.group
    info = await js.stream_info(stream)
    assigned = {each: (assignment.owner(each) if assignment else None) or "" for each in partitions}
    if info is None:
        return [
            PartitionState(partition=each, stream=stream, is_there=False, assigned=assigned[each])
            for each in partitions
        ]
    state, held = info["state"], await _counts(js, stream, subjects)
    found, gets = [], DirectGets(js, stream)
    await gets.open()
    try:
        for partition in partitions:
            record, committed_ns = await _record(bucket, group, partition)
            committed = record.position.sequence if record else 0
            # Of most that shippers of another kind could store there is nothing.
            there = [number for number in held if number % len(assigned) == partition]
            own = lag_of_messages(sum(held[number] for number in there), state)
            lag = StreamLag(messages=0, bytes=0, age_s=0.0)
            if (record.read_to if record else 0) < int(state["last_seq"]):
                lag = await _behind(gets, map(subjects.of_partition, there), committed, state)
            counted = {**state, "messages": own.messages, "bytes": own.bytes}
            found.append(
                _state(partition, info, counted, assigned[partition], record, committed_ns, lag)
            )
    finally:
        await gets.close()
    return found


async def _counts(js: JetStream, stream: str, subjects: Subjects) -> Counter[int]:
    """Return how many messages *stream* holds of each number of a partition."""
    found: Counter[int] = Counter()
    async for subject, messages in stored_subjects(js, stream, subjects.of_all()):
        with contextlib.suppress(BadSubject, BadHost):
            found[subjects.read(subject)[0]] += messages
    return found


async def _behind(
    gets: DirectGets, subjects: Iterable[str], done: int, state: Mapping[str, Any]
) -> StreamLag:
    """Return what a stream, whose *state* the server reports, holds of *subjects* behind the
    message *done*.
    """
    found = [await following(gets, subject, done + 1) for subject in subjects]
    there = [each for each in found if each is not None]
    if not there:
        return StreamLag(messages=0, bytes=0, age_s=0.0)
    lag = lag_of_messages(sum(each.messages for each in there), state)
    oldest_ns = min(each.time_ns for each in there)
    return replace(lag, age_s=max(0.0, (time.time_ns() - oldest_ns) / 1e9))


def _state(
    partition: int,
    info: Mapping[str, Any],
    state: Mapping[str, Any],
    assigned: str,
    record: EpochRecord | None,
    committed_ns: int,
    lag: StreamLag,
) -> PartitionState:
    return PartitionState(
        partition=partition,
        stream=str(info["config"]["name"]),
        is_there=True,
        messages=state["messages"],
        bytes=state["bytes"],
        last_sequence=state["last_seq"],
        assigned=assigned,
        owner=record.owner if record else "",
        released=record.released if record else False,
        epoch=record.epoch if record else 0,
        committed=record.position.sequence if record else 0,
        read_to=record.read_to if record else 0,
        committed_ns=committed_ns,
        rollbacks=record.rollbacks if record else 0,
        lost_bytes=record.lost_bytes if record else 0,
        missing_bytes=record.missing_bytes if record else 0,
        gone=record.succession.gone if record and record.succession else (),
        lag_messages=lag.messages,
        lag_bytes=lag.bytes,
        lag_s=lag.age_s,
        replicas_behind=replicas_behind(info),
    )


def replicas_behind(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the servers that do not keep up with the stream that *info* (JetStream's answer to
    STREAM.INFO) describes.
    """
    replicas = (info.get("cluster") or {}).get("replicas") or ()
    return tuple(sorted(str(each["name"]) for each in replicas if _is_behind(each)))


def _is_behind(replica: Mapping[str, Any]) -> bool:
    # In a busy stream a replica lacks the newest messages at any moment.
    if replica.get("current"):
        return False
    is_silent = replica.get("offline") or replica.get("active", 0) > REPLICA_SILENT_NS
    return bool(is_silent) or replica.get("lag", 0) > REPLICA_LAG_MAX


async def age_s_of(js: JetStream, stream: str, done: int, state: Mapping[str, Any]) -> float:
    """Return the age of the oldest message behind *done* in a stream whose *state* the server
    reports.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    oldest = await js.message(stream, max(done + 1, int(state["first_seq"])))
    since_ns = oldest.time_ns if oldest else time_ns_of(str(state["last_ts"]))
    return max(0.0, (time.time_ns() - since_ns) / 1e9)


async def _assignment(bucket: Bucket, group: str) -> Assignment | None:
    entry = await bucket.get(assignment_key(group))
    try:
        return Assignment.decode(entry.value) if entry else None
    except BadRecord:
        return None


async def _record(bucket: Bucket, group: str, partition: int) -> tuple[EpochRecord | None, int]:
    entry = await bucket.get(epoch_key(group, partition))
    try:
        if entry is None:
            return None, 0
        return EpochRecord.decode(entry.value, entry.header(SUCCESSION_HEADER)), entry.time_ns
    except BadRecord:
        return None, 0
