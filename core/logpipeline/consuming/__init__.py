"""Reads the streams of a pipeline in batches of messages, as a consumer with or without a state.

``async for batch in logpipeline.consume("billing", pipeline="logpipeline.yaml")`` hands out one
batch after the other; see `consume`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import ConsumeOptions, parse_acks
from logpipeline.consuming.reader import Reader
from logpipeline.credentials import nats_options
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, load

PATIENCE_S = 10.0


async def consume(
    name: str,
    *,
    pipeline: LogPipeline | Path | str,
    nats: NatsOptions | str | None = None,
    ack: str = "each",
    **options: Any,
) -> AsyncIterator[Batch]:
    """Yield what the streams of *pipeline* (a resource, or the path of one) hold for consumer
    *name*, batch by batch, for ever.

    A batch is processed when the next one is asked for: then it is acknowledged as *ack* says
    (``each``, ``every=100``, ``interval=30s``, ``every=100,interval=30s``, ``all``, ``none``), and
    the position is kept where *options* name a state. One that raises, or breaks out of the loop,
    leaves it unprocessed, and it comes again, unless `Batch.processed` said that it is done.
    *nats* is an address or how to log in; by default ``NATS_URL``, else the resource's servers.
    *options* are those of `ConsumeOptions`.

    Raises:
        BadOption: the options contradict each other.
        ConsumeError: it cannot go on; the message says what to do.
        ConnectFailed: the server cannot be reached.
    """
    resource = pipeline if isinstance(pipeline, LogPipeline) else load(Path(pipeline))
    wanted = ConsumeOptions(name=name, acks=parse_acks(ack), **options)
    connection = Connection(_server(resource, nats).named(f"logpipeline consume {name}"))
    await connection.start(patience_s=PATIENCE_S)
    try:
        async with Reader(JetStream(connection), resource, wanted) as reader:
            async for batch in reader:
                yield batch
    finally:
        await connection.close()


def _server(pipeline: LogPipeline, nats: NatsOptions | str | None) -> NatsOptions:
    if isinstance(nats, NatsOptions):
        return nats
    given = nats or os.environ.get("NATS_URL")
    servers = tuple(given.split(",")) if given else tuple(pipeline.spec.nats.servers)
    if not servers:
        raise ValueError(
            "no NATS server is known: give nats=URL, set NATS_URL, or list spec.nats.servers"
        )
    return nats_options(pipeline, servers=servers)
