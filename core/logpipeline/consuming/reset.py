"""Forgets how far a consumer was, so that it begins anew."""

from __future__ import annotations

import secrets
from pathlib import Path

from logpipeline.consuming.members import ALONE, Members
from logpipeline.consuming.options import KV, ConsumeOptions
from logpipeline.consuming.records import claim_key
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.spec import LogPipeline
from logpipeline.subjects import key_value_subject

NS = 1_000_000_000


async def reset(js: JetStream, pipeline: LogPipeline, options: ConsumeOptions) -> None:
    """Delete the state of *options*' consumer, and the consumers of this name that the resource
    does not list; one that it lists stays, and is where it was.

    Raises:
        ReaderBusy: somebody reads as this consumer; nothing is deleted.
        NotSent, OutcomeUnknown, ApiError: not all is deleted; the next call goes on.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    # As if we read alone: so nobody does, and nobody begins meanwhile.
    members = Members(
        js,
        bucket,
        consumer=options.name,
        member=f"reset-{secrets.token_hex(4)}",
        incarnation="reset",
        kind=ALONE,
        takeover_after_s=pipeline.spec.collectors.takeover_after_ns / NS,
    )
    await members.enter()
    try:
        await _forget(js, pipeline, options, bucket)
    finally:
        await members.leave()


async def _forget(
    js: JetStream, pipeline: LogPipeline, options: ConsumeOptions, bucket: Bucket
) -> None:
    is_listed = any(template.name == options.name for template in pipeline.spec.consumers)
    for partition in range(max(pipeline.spec.partitions, 1)):
        if not is_listed:
            await js.consumer_delete(pipeline.names.stream(partition), options.name)
        key = key_value_subject(bucket.name, claim_key(options.name, partition))
        try:
            await js.call(f"STREAM.PURGE.{bucket.stream}", {"filter": key})
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:
                raise
    if options.state not in (None, KV):
        Path(str(options.state)).unlink(missing_ok=True)
