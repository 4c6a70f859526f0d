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

from logpipeline.nats.bucket import Bucket, Entry
from logpipeline.nats.jetstream import JetStream, time_ns_of
from logpipeline.nats.scan import DirectGets, following
from logpipeline.nats.unanswered import AllAnswered, Unanswered, bucket_part, stream_part
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
    # False where no server answers for the stream or for the bucket of records.
    is_known: bool = True


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


async def survey(
    js: JetStream, pipeline: LogPipeline, unanswered: Unanswered | None = None
) -> list[PartitionState]:
    """Return the state of each partition. *unanswered* takes the streams, or the bucket, that no
    server answers for; without it all have to be answered for.

    Raises:
        NoStream: the pipeline was not applied to this server.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    asking = unanswered if unanswered is not None else AllAnswered()
    bucket = Bucket(js, pipeline.names.state_bucket)
    records = _Records(js, bucket, pipeline.spec.collectors.group, asking)
    assignment = await records.assignment()
    numbers = range(max(pipeline.spec.partitions, 1))
    shares = [numbers] if pipeline.is_single_stream else [range(each, each + 1) for each in numbers]

    async def of_stream(share: range) -> list[PartitionState]:
        stream = pipeline.names.stream(share[0])
        surveyed = _survey_single if pipeline.is_single_stream else _survey_one
        found = await asking.ask(
            stream_part(stream), lambda: surveyed(js, records, pipeline, assignment, share), None
        )
        if found is not None and not (found[0].is_there and records.are_silent):
            return found
        return [
            PartitionState(partition=each, stream=stream, is_there=True, is_known=False)
            for each in share
        ]

    found = [state for share in await asyncio.gather(*map(of_stream, shares)) for state in share]
    asking.check([bucket_part(bucket.name), *(stream_part(each.stream) for each in found)])
    return found


async def _survey_one(
    js: JetStream,
    records: _Records,
    pipeline: LogPipeline,
    assignment: Assignment | None,
    partitions: range,
) -> list[PartitionState]:
    """Return the state of the one of *partitions*, which has a stream of its own."""
    (partition,) = partitions
    stream = pipeline.names.stream(partition)
    info = await js.stream_info(stream)
    assigned = (assignment.owner(partition) if assignment else None) or ""
    if info is None:
        return [
            PartitionState(partition=partition, stream=stream, is_there=False, assigned=assigned)
        ]
    state = info["state"]
    record, committed_ns = await records.of(partition)
    committed = record.position.sequence if record else 0
    lag = lag_of(committed, state)
    if lag.messages:
        lag = replace(lag, age_s=await age_s_of(js, stream, committed, state))
    return [_state(partition, info, state, assigned, record, committed_ns, lag)]


async def _survey_single(
    js: JetStream,
    records: _Records,
    pipeline: LogPipeline,
    assignment: Assignment | None,
    partitions: range,
) -> list[PartitionState]:
    """Return the state of each of *partitions*, which one stream holds: how many messages it has of
    each, and how many of these are not committed.
    """
    subjects, stream = pipeline.subjects, pipeline.names.stream(0)
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
            record, committed_ns = await records.of(partition)
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
    cluster = info.get("cluster") or {}
    led_ns = _between(cluster.get("leader_since"), info.get("ts"))
    replicas = cluster.get("replicas") or ()
    return tuple(sorted(str(each["name"]) for each in replicas if _is_behind(each, led_ns)))


def _is_behind(replica: Mapping[str, Any], led_ns: int | None) -> bool:
    # In a busy stream a replica lacks the newest messages at any moment.
    if replica.get("current"):
        return False
    # `active` is 0 where the leader has not heard of the replica since its election, *led_ns* ago.
    # Servers before 2.12 do not say when that was.
    silent_ns = replica.get("active") or led_ns
    is_silent = replica.get("offline") or silent_ns is None or silent_ns > REPLICA_SILENT_NS
    return bool(is_silent) or replica.get("lag", 0) > REPLICA_LAG_MAX


def _between(since: str | None, now: str | None) -> int | None:
    """Return how many nanoseconds lie between two times of one answer, if it has both."""
    return time_ns_of(now) - time_ns_of(since) if since and now else None


async def age_s_of(js: JetStream, stream: str, done: int, state: Mapping[str, Any]) -> float:
    """Return the age of the oldest message behind *done* in a stream whose *state* the server
    reports.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    oldest = await js.message(stream, max(done + 1, int(state["first_seq"])))
    since_ns = oldest.time_ns if oldest else time_ns_of(str(state["last_ts"]))
    return max(0.0, (time.time_ns() - since_ns) / 1e9)


class _Records:
    """The records of *group* in *bucket*, which is asked by *asking*."""

    def __init__(self, js: JetStream, bucket: Bucket, group: str, asking: Unanswered) -> None:
        self._js = js
        self._asking = asking
        self._bucket = bucket
        self._group = group
        self._part = bucket_part(bucket.name)

    @property
    def are_silent(self) -> bool:
        """Whether no server answers for the bucket."""
        return self._part in self._asking.reasons

    async def assignment(self) -> Assignment | None:
        """Return which partition each collector is to own; None where nothing says so."""
        entry = await self._get(assignment_key(self._group))
        try:
            return Assignment.decode(entry.value) if entry else None
        except BadRecord:
            return None

    async def of(self, partition: int) -> tuple[EpochRecord | None, int]:
        """Return the record of *partition*, with the time when it was written; None and 0 where
        there is none.
        """
        entry = await self._get(epoch_key(self._group, partition))
        try:
            if entry is None:
                return None, 0
            return EpochRecord.decode(entry.value, entry.header(SUCCESSION_HEADER)), entry.time_ns
        except BadRecord:
            return None, 0

    async def _get(self, key: str) -> Entry | None:
        return await self._asking.ask(
            self._part,
            lambda: self._js.direct_get(self._bucket.stream, self._bucket.get(key)),
            None,
        )
