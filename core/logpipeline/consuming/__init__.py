"""Reads the streams of a pipeline in batches of messages, as a consumer with or without a state.

``async for batch in logpipeline.consume("billing")`` hands out one batch after the other of the
pipeline that `logpipeline up` runs here; see `consume`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import ConsumeOptions, parse_acks
from logpipeline.consuming.reader import Reader
from logpipeline.layout import NoPipeline, RunRecord, running_layout, server_of
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, load

PATIENCE_S = 10.0


async def consume(
    name: str,
    *,
    pipeline: LogPipeline | Path | str | None = None,
    data: Path | str | None = None,
    nats: NatsOptions | str | None = None,
    ack: str = "each",
    **options: Any,
) -> AsyncIterator[Batch]:
    """Yield what the streams of *pipeline* (a resource, or the path of one) hold for consumer
    *name*, batch by batch, for ever. Without *pipeline*, it is the one that `logpipeline up` runs
    on this machine, in the folder *data* if several do.

    A batch is processed when the next one is asked for: then it is acknowledged as *ack* says
    (``each``, ``every=100``, ``interval=30s``, ``every=100,interval=30s``, ``all``, ``none``), and
    the position is kept where *options* name a state. One that raises, or breaks out of the loop,
    leaves it unprocessed, and it comes again, unless `Batch.processed` said that it is done.
    *nats* is an address or how to log in; by default the server of the running pipeline, else
    ``NATS_URL``, else the resource's servers.
    *options* are those of `ConsumeOptions`.

    Raises:
        BadOption: the options contradict each other.
        ConsumeError: it cannot go on; the message says what to do.
        NoPipeline: *pipeline* was not given, and none runs here, or several do.
        ConnectFailed: the server cannot be reached.
    """
    resource, run = _chosen(pipeline, data)
    wanted = ConsumeOptions(name=name, acks=parse_acks(ack), **options)
    connection = Connection(_server(resource, run, nats).named(f"logpipeline consume {name}"))
    await connection.start(patience_s=PATIENCE_S)
    try:
        async with Reader(JetStream(connection), resource, wanted) as reader:
            async for batch in reader:
                yield batch
    finally:
        await connection.close()


def _chosen(
    pipeline: LogPipeline | Path | str | None, data: Path | str | None
) -> tuple[LogPipeline, RunRecord | None]:
    """Return the pipeline, and the record of its `up`, None if it does not run here."""
    given = pipeline if isinstance(pipeline, LogPipeline | None) else load(Path(pipeline))
    name = (given.namespace, given.name) if given is not None else None
    layout = running_layout(str(data) if data is not None else None, name)
    if given is None and not layout.pipeline.is_file():
        raise NoPipeline(
            f"nothing was ever applied in {layout.data}; give pipeline=FILE, or start it with "
            "`logpipeline up -f FILE`"
        )
    return given or load(layout.pipeline), RunRecord.read(layout)


def _server(
    pipeline: LogPipeline, run: RunRecord | None, nats: NatsOptions | str | None
) -> NatsOptions:
    if isinstance(nats, NatsOptions):
        return nats
    try:
        return server_of(pipeline, run, nats)
    except NoPipeline as error:
        raise NoPipeline(f"{error}; start it with `logpipeline up`, or give nats=URL") from None
