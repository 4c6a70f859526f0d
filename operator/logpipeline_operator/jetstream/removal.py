"""Deletes what JetStream has of a pipeline, for the one who asked for it with ``deletionPolicy:
Delete``.
"""

from __future__ import annotations

from logpipeline.assigning import forget_group
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.desired import mark_of
from logpipeline.plan.model import is_ours
from logpipeline.plan.observe import found_stream
from logpipeline.spec import LogPipeline

_STREAM_NOT_FOUND = 10059


async def remove(js: JetStream, pipeline: LogPipeline, *, installation: str = "") -> list[str]:
    """Delete every stream of *pipeline* that is its own, or what external streams know of its
    group; return the names of what went.

    Raises:
        NotSent, OutcomeUnknown, ApiError: not all were deleted; the next call goes on.
    """
    names = pipeline.names
    if pipeline.spec.stream.external:
        is_forgotten = await forget_group(js, pipeline, installation=installation)
        return [f"group {pipeline.spec.collectors.group}"] if is_forgotten else []
    mark = mark_of(pipeline, installation)
    wanted = [names.stream(number) for number in range(max(pipeline.spec.partitions, 1))]
    wanted += [names.snapshot_stream, names.dead_letter_stream, f"KV_{names.state_bucket}"]
    removed = []
    for name in wanted:
        stream = await found_stream(js, name)
        if stream is None or not is_ours(stream.config, {"metadata": mark}):
            continue
        try:
            await js.call(f"STREAM.DELETE.{name}", {})
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
        removed.append(f"stream {name}")
    return removed
