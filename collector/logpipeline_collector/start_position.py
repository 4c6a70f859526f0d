"""Where a group begins in a partition that it never had. It is asked for once, at the first
take-over, whose record keeps the answer: a crash right behind it skips nothing.
"""

from __future__ import annotations

from typing import Literal

from logpipeline.nats.jetstream import JetStream
from logpipeline.records import StreamPosition
from logpipeline.streamstate import state_of, time_at
from logpipeline_collector.stream_position import StreamMissing
from logpipeline_collector.stream_reader import ConsumerName

DeliverPolicy = Literal["all", "new", "byStartTime"]

# It is asked one question, and deleted.
CONSUMER_INACTIVE_NS = 5_000_000_000


async def first_position(
    js: JetStream,
    stream: str,
    name: ConsumerName,
    *,
    policy: DeliverPolicy,
    start_time: str | None,
) -> StreamPosition:
    """Return the position behind which a group begins that is to be given what *policy* says;
    *name* is a consumer's that nobody else has.

    Raises:
        StreamMissing: the stream is not there.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    if policy == "all":
        return StreamPosition("", 0, 0)
    info = await js.stream_info(stream)
    if info is None:
        raise StreamMissing(stream)
    state = state_of(info)
    last = state.last
    if policy == "byStartTime":
        assert start_time is not None, "the resource is refused without"
        last = await _before_time(js, stream, name, start_time)
    time_ns = await time_at(js, stream, state, last)
    return StreamPosition(state.created, last, time_ns or 0)


async def _before_time(js: JetStream, stream: str, name: ConsumerName, start_time: str) -> int:
    """Return the sequence before the first message of *start_time* or later."""
    # A consumer is made by the stream's leader; a direct get may be answered by a replica that does
    # not have the last messages yet.
    config = {
        "name": str(name),
        "ack_policy": "none",
        "deliver_policy": "by_start_time",
        "opt_start_time": start_time,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_INACTIVE_NS,
    }
    made = await js.consumer_create(stream, config, action="create")
    await js.consumer_delete(stream, str(name))
    return int(made["delivered"]["stream_seq"])
