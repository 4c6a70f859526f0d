"""Removes the streams, consumers and records of a pipeline, and no others."""

from __future__ import annotations

from collections.abc import Iterable

from logpipeline.group.assignment import forget_group
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.plan.desired import mark_of
from logpipeline.plan.model import Config, is_ours
from logpipeline.plan.observe import consumers_of, found_stream
from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import missed_key_of, table_key


async def remove(js: JetStream, pipeline: LogPipeline, *, installation: str = "") -> list[str]:
    """Delete the streams of *pipeline*; of external streams only its consumers, and the records of
    its group and of its table. Return the names of what was deleted.

    Raises:
        NotSent, OutcomeUnknown, ApiError, Conflict: not everything was deleted; the next call goes
            on.
    """
    names = pipeline.names
    ours: Config = {"metadata": mark_of(pipeline, installation)}
    logs = [names.stream(number) for number in range(pipeline.stream_count)]
    if not pipeline.spec.stream.external:
        side = [names.snapshot_stream, names.dead_letter_stream, f"KV_{names.state_bucket}"]
        return await _remove_streams(js, [*logs, *side], ours)
    removed = await _remove_consumers(js, logs, ours)
    if await found_stream(js, f"KV_{names.state_bucket}") is None:
        # The owner was deleted before. A direct get of a missing stream gets no answer, which would
        # look like a busy server.
        return removed
    if await forget_table(js, pipeline):
        removed.append("progress of the table")
    if await forget_group(js, pipeline, installation=installation):
        removed.append(f"group {pipeline.spec.collectors.group}")
    return removed


async def forget_table(js: JetStream, pipeline: LogPipeline) -> bool:
    """Delete the records of *pipeline*'s table in the bucket, so that no lines are kept for it any
    more; the table stays. Return whether there were any.

    Raises:
        NotSent, OutcomeUnknown, ApiError: they may still exist; the next call goes on.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    key = table_key(pipeline.namespace, pipeline.name)
    there = [each for each in (missed_key_of(key), key) if await bucket.get(each) is not None]
    for each in there:
        await bucket.erase(each)
    return bool(there)


async def _remove_streams(js: JetStream, names: Iterable[str], ours: Config) -> list[str]:
    removed = []
    for name in names:
        stream = await found_stream(js, name)
        if stream is None or not is_ours(stream.config, ours):
            continue
        try:
            await js.call(f"STREAM.DELETE.{name}", {})
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
        removed.append(f"stream {name}")
    return removed


async def _remove_consumers(js: JetStream, streams: Iterable[str], ours: Config) -> list[str]:
    """Delete the consumers with the pipeline's mark, even if the resource no longer names them.
    Other consumers, collectors' among them, have another mark or none.
    """
    removed = []
    for stream in streams:
        if await found_stream(js, stream) is None:
            continue
        for consumer in await consumers_of(js, stream):
            if is_ours(consumer["config"], ours):
                await js.consumer_delete(stream, str(consumer["name"]))
                removed.append(f"consumer {stream}/{consumer['name']}")
    return removed
