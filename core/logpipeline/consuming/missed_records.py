"""Records in a pipeline's bucket of what its readers missed: of each reader and partition one.
Readers write them; the operator and `status` read them, also of readers that are gone.
"""

from __future__ import annotations

import asyncio
import logging

from logpipeline.nats.bucket import Bucket, Entry
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.plan.observe import REQUESTS_MAX, stored_subjects
from logpipeline.records import BadRecord
from logpipeline.subjects import key_value_subject
from logpipeline.tables.progress import Missed

log = logging.getLogger(__name__)

# The keys of all consumers and partitions.
MISSED_KEYS = "consume.*.missed.*"
# Each that is read is a request. More are there only where many readers missed something in many
# partitions; what the others missed is in their own logs.
RECORDS_MAX = 2_000


def missed_key(consumer: str, partition: int) -> str:
    """Return the key of what *consumer* missed of *partition*."""
    return f"consume.{consumer}.missed.p{partition}"


def decoded(entry: Entry | None) -> Missed:
    """Return the record in *entry*; nothing missed where there is none that can be read."""
    try:
        return Missed.decode(entry.value) if entry is not None else Missed()
    except BadRecord:
        return Missed()


async def missed_by_readers(js: JetStream, bucket: Bucket) -> list[tuple[str, Missed]]:
    """Return at most `RECORDS_MAX` records, each with the name of its reader.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    prefix = key_value_subject(bucket.name, "")
    keys: list[str] = []
    try:
        async for subject, _ in stored_subjects(js, bucket.stream, prefix + MISSED_KEYS):
            keys.append(subject.removeprefix(prefix))
            if len(keys) == RECORDS_MAX:
                log.warning(
                    "not all that readers missed is counted", extra={"records": RECORDS_MAX}
                )
                break
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
    gate = asyncio.Semaphore(REQUESTS_MAX)

    async def record_of(key: str) -> Missed:
        async with gate:
            return decoded(await bucket.get(key))

    records = await asyncio.gather(*map(record_of, keys))
    return [(key.split(".")[1], record) for key, record in zip(keys, records, strict=True)]
