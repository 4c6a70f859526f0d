"""Whether somebody else runs the collectors that are to run here. Two of one name, sharing the
partitions out to different sets, would pass them to and fro for ever.
"""

from __future__ import annotations

import asyncio
import contextlib

from logpipeline.nats.bucket import Bucket, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import member_key
from logpipeline.spec import LogPipeline
from logpipeline.statefile import StateBroken
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.layout import Layout
from logpipeline_collector.folder import known_identity

LOOK_EVERY_S = 0.2


async def check_alone(
    bucket: Bucket, pipeline: LogPipeline, layout: Layout, members: list[str]
) -> None:
    """Return when nobody else works as one of *members*: at once, unless some ended without a word
    elsewhere; then after their silence.

    Raises:
        CliError: somebody does.
    """
    group = pipeline.spec.collectors.group
    async with asyncio.TaskGroup() as tasks:
        checks = [
            tasks.create_task(_is_alive_elsewhere(bucket, pipeline, layout, member))
            for member in members
        ]
    for member, check in zip(members, checks, strict=True):
        if check.result():
            raise CliError(
                f"{member} of the group {group} runs elsewhere on these streams: stop that "
                f"pipeline, or give this one another name and spec.collectors.group"
            )


async def _is_alive_elsewhere(
    bucket: Bucket, pipeline: LogPipeline, layout: Layout, member: str
) -> bool:
    group = pipeline.spec.collectors.group
    first = await _heartbeat(bucket, group, member)
    if first is None or _is_here(layout, group, member, first):
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pipeline.spec.collectors.takeover_after_ns / 1e9):
            while (now := await _heartbeat(bucket, group, member)) is not None:
                if now.revision != first.revision:
                    return True
                await asyncio.sleep(LOOK_EVERY_S)
    return False


async def _heartbeat(bucket: Bucket, group: str, member: str) -> Entry | None:
    """Return the member's last heartbeat; None where it left, or the server does not answer."""
    try:
        entry = await bucket.get(member_key(group, member))
    except (NotSent, OutcomeUnknown, ApiError):
        return None
    return entry if entry is not None and entry.value else None


def _is_here(layout: Layout, group: str, member: str, entry: Entry) -> bool:
    """Return whether it was a process of our own folder, of which there is none: that is locked."""
    try:
        identity = known_identity(layout.collector(member), group)
    except StateBroken:
        return False
    return identity is not None and entry.value.startswith(f"{identity}-".encode())
