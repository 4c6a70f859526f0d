"""The present state of JetStream: a pipeline's streams, their consumers, and streams of others.

Reading only. Every request may be repeated, so an outcome that is unknown is asked again, a few
times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NoResponders, OutcomeUnknown
from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.plan.model import (
    Account,
    Desired,
    FoundConsumer,
    FoundStream,
    Limits,
    Observed,
    is_ours,
)
from logpipeline.records import Assignment, BadRecord

# Requests under way at once: a server answers in the order of arrival anyway.
REQUESTS_MAX = 16
# An answer that is lost is asked for again so often; then the caller gets the error.
ATTEMPTS_MAX = 3
# A listing comes in pages; a server that never ends one is broken.
PAGES_MAX = 1000

_NOT_ENABLED = (10039, 10076)


class JetStreamOff(Exception):
    """The server, or our account there, has no JetStream."""


async def observe(js: JetStream, desired: Desired) -> Observed:
    """Return the existing streams of *desired*, and those beside them.

    Raises:
        JetStreamOff: there is no JetStream to observe.
        OutcomeUnknown, NotSent: the server did not answer.
        ApiError: it refused to.
    """
    account = await account_of(js)
    gate = asyncio.Semaphore(REQUESTS_MAX)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_found(js, each.name, gate)) for each in desired.streams]
            listing = group.create_task(streams_below(js, desired.root))
    except ExceptionGroup as failures:
        # One of them says it all: they went to the same server.
        raise failures.exceptions[0] from None
    streams = {found.name: found for task in tasks if (found := task.result()) is not None}
    wanted = {stream.name for stream in desired.streams}
    return Observed(
        server_version=js.connection.server_version,
        max_payload_bytes=js.connection.max_payload_bytes,
        # Clients cannot learn how many servers a cluster has.
        servers=0 if js.connection.is_clustered else 1,
        account=account,
        streams=streams,
        neighbours=tuple(found for found in listing.result() if found.name not in wanted),
        partitions=await _partitions(js, desired),
        strays=await _strays(js, desired, streams),
    )


async def _strays(js: JetStream, desired: Desired, streams: Mapping[str, FoundStream]) -> int:
    """Return how many messages lie in the one stream of all partitions and in none of these; of a
    stream that was made for them, or taken over before, there are none.
    """
    wanted = desired.single
    found = streams.get(wanted.name) if wanted is not None else None
    if wanted is None or found is None or is_ours(found.config, wanted.config):
        return 0
    places = {subject.removesuffix(">") for subject in wanted.config["subjects"]}
    depth = min(places).count(".")
    count = 0
    async for subject, messages in stored_subjects(js, wanted.name, ">"):
        place = ".".join(subject.split(".")[:depth]) + "."
        count += 0 if place in places else messages
    return count


async def stored_subjects(
    js: JetStream, stream: str, subject: str
) -> AsyncIterator[tuple[str, int]]:
    """Yield the subjects of what *stream* holds of the filter *subject*, with their messages."""
    seen = 0
    for _ in range(PAGES_MAX):
        query = {"subjects_filter": subject, "offset": seen}
        answer = await ask(js, f"STREAM.INFO.{stream}", query)
        page = answer["state"].get("subjects") or {}
        for name, messages in page.items():
            yield name, int(messages)
        seen += len(page)
        if not page or seen >= int(answer.get("total", 0)):
            return


async def _partitions(js: JetStream, desired: Desired) -> int:
    """Return how many partitions the pipeline's collectors share, 0 if they never did."""
    if not desired.state_bucket:
        return 0
    try:
        entry = await Bucket(js, desired.state_bucket).get(desired.assignment)
        assignment = Assignment.decode(entry.value) if entry is not None else None
    except (NoResponders, BadRecord):
        return 0  # there is no bucket yet, or what stands there is about to be written anew
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return 0
        raise
    if assignment is None or assignment.pipeline.partition("@")[0] not in ("", desired.pipeline):
        return 0
    return assignment.partitions


async def found_stream(js: JetStream, name: str) -> FoundStream | None:
    """Return the stream *name* as it is now, without its consumers, or None."""
    try:
        return _stream(await ask(js, f"STREAM.INFO.{name}"))
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return None
        raise


async def consumers_of(js: JetStream, stream: str) -> list[dict[str, Any]]:
    """Return the server's description of each consumer of *stream*."""
    return await _pages(js, f"CONSUMER.LIST.{stream}", {}, "consumers")


async def stream_names(js: JetStream) -> list[str]:
    """Return the names of all streams of our account, sorted."""
    names: list[Any] = await _pages(js, "STREAM.NAMES", {}, "streams")
    return sorted(map(str, names))


async def streams_below(js: JetStream, root: str) -> list[FoundStream]:
    """Return the streams whose subjects overlap the filter *root*, without their consumers."""
    return [_stream(info) for info in await _pages(js, "STREAM.LIST", {"subject": root}, "streams")]


async def account_of(js: JetStream) -> Account:
    """Return limits and use of our account."""
    try:
        return read_account(await ask(js, "INFO"))
    except NoResponders:
        raise JetStreamOff(
            "the nats-server has no JetStream: enable it (`jetstream {}` in its configuration), "
            "or check nats.jsDomain and our permissions for $JS.API"
        ) from None
    except ApiError as error:
        if error.err_code not in _NOT_ENABLED:
            raise
        raise JetStreamOff(
            "JetStream is not enabled for our account: enable it in the server's configuration "
            "of the account, or use other credentials"
        ) from error


def read_account(answer: dict[str, Any]) -> Account:
    """Return the account that JetStream's answer to ``INFO`` describes."""
    tiers = {
        int(name.removeprefix("R")): _account(tier)
        for name, tier in (answer.get("tiers") or {}).items()
        if name.removeprefix("R").isdecimal()
    }
    return _account(answer, tiers)


async def ask(js: JetStream, request: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer to a request that changes nothing, asked again while it is lost.

    Raises:
        OutcomeUnknown: there was no answer to any of `ATTEMPTS_MAX` questions.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await js.call(request, body)
        except OutcomeUnknown:
            continue
    return await js.call(request, body)


async def _found(js: JetStream, name: str, gate: asyncio.Semaphore) -> FoundStream | None:
    async with gate:
        stream = await found_stream(js, name)
        if stream is None:
            return None
        consumers = {
            str(info["name"]): FoundConsumer(
                config={"name": info["name"], **info["config"]}, created=info["created"]
            )
            for info in await consumers_of(js, name)
        }
    return FoundStream(
        config=stream.config,
        state=stream.state,
        created=stream.created,
        now=stream.now,
        consumers=consumers,
    )


async def _pages(
    js: JetStream, request: str, body: dict[str, Any], field: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(PAGES_MAX):
        page = await ask(js, request, {**body, "offset": len(found)})
        rows = page.get(field) or []
        found += rows
        if not rows or len(found) >= page["total"]:
            break
    return found


def _stream(info: dict[str, Any]) -> FoundStream:
    return FoundStream(
        config=info["config"],
        state=info["state"],
        created=info["created"],
        now=info.get("ts", info["created"]),
    )


def _account(answer: dict[str, Any], tiers: dict[int, Account] | None = None) -> Account:
    limits = answer.get("limits") or {}

    def read(name: str) -> int:
        return int(limits.get(name, -1))

    return Account(
        limits=Limits(
            storage_bytes=read("max_storage"),
            memory_bytes=read("max_memory"),
            streams=read("max_streams"),
            consumers=read("max_consumers"),
            storage_stream_bytes=read("storage_max_stream_bytes"),
            memory_stream_bytes=read("memory_max_stream_bytes"),
            is_max_bytes_required=bool(limits.get("max_bytes_required", False)),
        ),
        streams=int(answer.get("streams", 0)),
        consumers=int(answer.get("consumers", 0)),
        reserved_storage_bytes=int(answer.get("reserved_storage", 0)),
        reserved_memory_bytes=int(answer.get("reserved_memory", 0)),
        tiers=tiers or {},
    )
