"""Deletes a pipeline's streams, for the one who asked for it with ``deletionPolicy: Delete``."""

from __future__ import annotations

from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.model import owner_of
from logpipeline.plan.observe import found_stream
from logpipeline.spec import LogPipeline

_STREAM_NOT_FOUND = 10059


async def remove(js: JetStream, pipeline: LogPipeline) -> list[str]:
    """Delete every stream of *pipeline* that is its own, and return their names.

    Raises:
        NotSent, OutcomeUnknown, ApiError: not all were deleted; the next call goes on.
    """
    names = pipeline.names
    wanted = [names.stream(number) for number in range(max(pipeline.spec.partitions, 1))]
    wanted += [names.snapshot_stream, names.dead_letter_stream, f"KV_{names.state_bucket}"]
    removed = []
    for name in wanted:
        stream = await found_stream(js, name)
        if stream is None or owner_of(stream.config) != f"{pipeline.namespace}/{pipeline.name}":
            continue
        try:
            await js.call(f"STREAM.DELETE.{name}", {})
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
        removed.append(name)
    return removed
