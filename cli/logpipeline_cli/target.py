"""The pipeline and the server that a command is for: those that run here, or the given ones."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logpipeline import json_text
from logpipeline.layout import (
    Layout,
    NoPipeline,
    RunRecord,
    default_data,
    running_layout,
    server_of,
)
from logpipeline.nats.connection import ConnectFailed, Connection, NatsOptions, gather
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline, load
from logpipeline.subjects import ControlSubjects
from logpipeline_cli.errors import CliError

# A person waits for the command, so that it gives up sooner than a component would.
PATIENCE_S = 5.0

ANSWERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """A pipeline, its data folder, and the access to its server; *run* is set if it runs here."""

    pipeline: LogPipeline
    layout: Layout
    nats: NatsOptions
    run: RunRecord | None


def find_target(*, file: str | None, data: str | None, nats: str | None) -> Target:
    """Return the target that the arguments of a command choose.

    Raises:
        CliError: they choose no pipeline, or no server is known for it.
        SpecError: the resource has mistakes.
    """
    pipeline, layout = find_pipeline(file=file, data=data)
    run = RunRecord.read(layout)
    return Target(pipeline, layout, _server(pipeline, run, nats), run)


def find_pipeline(*, file: str | None, data: str | None) -> tuple[LogPipeline, Layout]:
    """Return the pipeline that the arguments of a command choose, and its data folder.

    Raises:
        CliError: they choose none.
        SpecError: the resource has mistakes.
    """
    given = load(Path(file)) if file is not None else None
    if given is not None and data is None:
        return given, Layout(default_data(given.namespace, given.name))
    layout = running_layout(data, None)
    return given or _applied(layout), layout


@asynccontextmanager
async def connected(target: Target, name: str) -> AsyncIterator[JetStream]:
    """Connect to the target's server as *name*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    trouble = target.run.trouble if target.run is not None else ""
    try:
        async with reached(target.nats, name) as js:
            yield js
    except ConnectFailed as error:
        raise ConnectFailed(f"{error}; `up` says: {trouble}" if trouble else str(error)) from error


@asynccontextmanager
async def reached(nats: NatsOptions, name: str) -> AsyncIterator[JetStream]:
    """Connect to a server as *name*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    # The command prints an error itself; without this, the connection's log would print it, too.
    logging.getLogger().addHandler(logging.NullHandler())
    connection = Connection(nats.named(f"logpipeline {name}"))
    await connection.start(patience_s=PATIENCE_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


def _applied(layout: Layout) -> LogPipeline:
    if not layout.pipeline.is_file():
        raise CliError(
            f"nothing was ever applied in {layout.data}; give the resource with -f FILE, or start "
            "it with `logpipeline up -f FILE`"
        )
    return load(layout.pipeline)


def _server(pipeline: LogPipeline, run: RunRecord | None, nats: str | None) -> NatsOptions:
    try:
        return server_of(pipeline, run, nats)
    except NoPipeline as error:
        raise CliError(
            f"{error}; start it with `logpipeline up`, give --nats URL, or set NATS_URL"
        ) from None


async def ask(connection: Connection, control_root: str) -> dict[str, list[dict[str, Any]]]:
    """Return the status of all shippers and collectors that answer in time, by kind."""
    answers: dict[str, list[dict[str, Any]]] = {"shipper": [], "collector": []}

    def keep(message: RawMessage) -> None:
        try:
            answer = json_text.parse(message.data)
        except ValueError:
            return
        kind = str(answer.get("component")) if isinstance(answer, dict) else ""
        if kind in answers and len(answers[kind]) < ANSWERS_MAX:
            answers[kind].append(answer)

    subjects = map(ControlSubjects(control_root).status, answers)
    await gather(connection, subjects, b"", keep)
    return answers
