"""The pipeline and the server that a command or a reader is for: those that run here, or the given
ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from logpipeline.credentials import nats_options
from logpipeline.layout import COMMAND, Layout, NoPipeline, RunRecord, Words, running_layout
from logpipeline.nats.connection import ConnectFailed, Connection, NatsOptions
from logpipeline.spec import LogPipeline, expand_local, load


@dataclass(frozen=True, slots=True)
class Target:
    """A pipeline, its data folder, and the access to its server; *run* is set if it runs here."""

    pipeline: LogPipeline
    layout: Layout
    nats: NatsOptions
    run: RunRecord | None


def find_target(
    given: LogPipeline | Path | str | None,
    data: Path | str | None,
    nats: NatsOptions | str | None,
    *,
    words: Words = COMMAND,
) -> Target:
    """Return the pipeline that `find_pipeline` finds, and its server: *nats*, or the one that it
    runs with here, else ``NATS_URL``, else those of the resource.

    Raises:
        NoPipeline: no pipeline is chosen, or no server is known for it.
        SpecError: the resource has mistakes.
        OSError: the resource cannot be read.
    """
    pipeline, layout = find_pipeline(given, data, words=words)
    run = RunRecord.read(layout)
    options = nats if isinstance(nats, NatsOptions) else _server(pipeline, run, nats, words)
    return Target(pipeline, layout, options, run)


def find_pipeline(
    given: LogPipeline | Path | str | None, data: Path | str | None, *, words: Words = COMMAND
) -> tuple[LogPipeline, Layout]:
    """Return the pipeline *given* (a resource, or the path of one), with whole paths for those of
    this machine that begin with `~` or `${DATA}`, and its folder: *data*, or where `up` keeps it.
    Without *given* it is the pipeline in *data*, or the only one that runs.

    Raises:
        NoPipeline: none is given, and none runs here, or several do.
        SpecError: the resource has mistakes.
        OSError: the resource cannot be read.
    """
    pipeline = given if isinstance(given, LogPipeline | None) else load(Path(given))
    name = (pipeline.namespace, pipeline.name) if pipeline is not None else None
    layout = running_layout(data, name, words=words)
    if pipeline is not None:
        return expand_local(pipeline, layout.data), layout
    if not layout.pipeline.is_file():
        raise NoPipeline(
            f"nothing was ever applied in {layout.data}; give the resource with {words.file}, or "
            "start it with `logpipeline up -f FILE`"
        )
    return load(layout.pipeline), layout


def _server(
    pipeline: LogPipeline, run: RunRecord | None, nats: str | None, words: Words
) -> NatsOptions:
    if run is not None and (nats is None or nats == run.nats):
        login = Path(run.login) if run.login else None
        return nats_options(pipeline, servers=(run.nats,), login=login)
    if given := nats or os.environ.get("NATS_URL"):
        return nats_options(pipeline, servers=tuple(given.split(",")))
    if pipeline.spec.nats.servers:
        return nats_options(pipeline, servers=tuple(pipeline.spec.nats.servers))
    raise NoPipeline(
        f"no NATS server is known: {pipeline.namespace}/{pipeline.name} does not run here, "
        "NATS_URL is not set, and the resource names none in spec.nats.servers; start it with "
        f"`logpipeline up`, give {words.nats}, or set NATS_URL"
    )


async def connect(target: Target, name: str, *, patience_s: float) -> Connection:
    """Return a connection to the target's server as *name*, which is tried for *patience_s*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    trouble = target.run.trouble if target.run is not None else ""
    try:
        return await connect_to(target.nats, name, patience_s=patience_s)
    except ConnectFailed as error:
        raise ConnectFailed(f"{error}; `up` says: {trouble}" if trouble else str(error)) from error


async def connect_to(nats: NatsOptions, name: str, *, patience_s: float) -> Connection:
    """Return a connection to a server as *name*, which is tried for *patience_s*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    connection = Connection(nats.named(f"logpipeline {name}"))
    await connection.start(patience_s=patience_s)
    return connection
