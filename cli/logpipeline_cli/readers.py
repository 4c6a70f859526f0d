"""The readers of a pipeline beside its collectors, as the server knows them: consumers of its
streams, of `logpipeline consume` or of any other program.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from logpipeline.consuming.missed_records import missed_by_readers
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.nats.unanswered import Unanswered, bucket_part, stream_part
from logpipeline.plan.model import COLLECTOR_GROUP_KEY
from logpipeline.plan.observe import REQUESTS_MAX, consumers_of
from logpipeline.tables.progress import Missed

# So many are described, by name: a program that makes a consumer for each of its runs may leave
# thousands behind.
READERS_MAX = 200


async def readers_of(
    js: JetStream, bucket: Bucket, streams: Sequence[str], unanswered: Unanswered
) -> list[dict[str, Any]]:
    """Return the readers of *streams* by name, as `status -o json` prints them: for each stream how
    many messages were *read* (acknowledged, or delivered where none is), how many are left, and,
    as *bucket* knows, which of them were deleted before they were read. *unanswered* takes what no
    server answers for.

    Raises:
        NotSent, ApiError: the server could not be asked.
    """
    gate = asyncio.Semaphore(REQUESTS_MAX)

    async def of_stream(stream: str) -> list[dict[str, Any]]:
        async with gate:
            try:
                return await unanswered.ask(
                    stream_part(stream), lambda: consumers_of(js, stream), []
                )
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND:
                    return []
                raise

    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    listed = await asyncio.gather(*map(of_stream, streams))
    records: list[tuple[str, Missed]] = await unanswered.ask(
        bucket_part(bucket.name), lambda: missed_by_readers(js, bucket), []
    )
    missed = {(name, stream): record for name, record in records for stream in record.streams}
    for stream, consumers in zip(streams, listed, strict=True):
        for consumer in consumers:
            if COLLECTOR_GROUP_KEY not in (consumer["config"].get("metadata") or {}):
                name = str(consumer["name"])
                gone = missed.get((name, stream), Missed())
                found[name].append(_in_stream(stream, consumer, gone))
    return [{"name": name, "streams": rows} for name, rows in sorted(found.items())[:READERS_MAX]]


def _in_stream(stream: str, consumer: dict[str, Any], missed: Missed) -> dict[str, Any]:
    is_acknowledged = consumer["config"].get("ack_policy", "none") != "none"
    read = consumer["ack_floor" if is_acknowledged else "delivered"]
    return {
        "stream": stream,
        "read": int(read["consumer_seq"]),
        "pendingMessages": int(consumer.get("num_pending", 0)),
        "unacknowledged": int(consumer.get("num_ack_pending", 0)),
        "redelivered": int(consumer.get("num_redelivered", 0)),
        "missedMessages": missed.messages,
        "missed": [asdict(each) for each in missed.streams.get(stream, ())],
    }
