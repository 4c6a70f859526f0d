"""The pipeline and the server that a command is for, as its arguments name them, and what its
components say of themselves.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from logpipeline import json_text
from logpipeline import target as targets
from logpipeline.layout import Layout
from logpipeline.nats.connection import Connection, NatsOptions, gather
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects
from logpipeline.target import Target
from logpipeline_cli.component_answers import is_readable, name_in

__all__ = ["Target", "ask", "connected", "find_pipeline", "find_target", "reached"]

# A person waits for the command, so that it gives up sooner than a component would.
PATIENCE_S = 5.0

ANSWERS_MAX = 10_000


def find_target(*, file: str | None, data: str | None, nats: str | None) -> Target:
    """Return the target that the arguments of a command choose; see `targets.find_target`."""
    return targets.find_target(file, data, nats)


def find_pipeline(*, file: str | None, data: str | None) -> tuple[LogPipeline, Layout]:
    """Return the pipeline that the arguments of a command choose, and its data folder; see
    `targets.find_pipeline`.
    """
    return targets.find_pipeline(file, data)


@asynccontextmanager
async def connected(target: Target, name: str) -> AsyncIterator[JetStream]:
    """Connect to the target's server as *name*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    _hide_log()
    connection = await targets.connect(target, name, patience_s=PATIENCE_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def reached(nats: NatsOptions, name: str) -> AsyncIterator[JetStream]:
    """Connect to a server as *name*.

    Raises:
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    _hide_log()
    connection = await targets.connect_to(nats, name, patience_s=PATIENCE_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


def _hide_log() -> None:
    # The command prints an error itself; without this, the connection's log would print it, too.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


async def ask(connection: Connection, control_root: str) -> dict[str, list[dict[str, Any]]]:
    """Return the status of all shippers and collectors that answer in time, by kind; beside them as
    `unreadable` the names of those whose answers cannot be read.
    """
    kinds = ("shipper", "collector")
    answers: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*kinds, "unreadable")}

    def keep(message: RawMessage) -> None:
        if not message.data:
            return  # the server's: no component listens
        try:
            answer = json_text.parse(message.data)
        except ValueError:
            put("unreadable", {"name": "a shipper or collector"})
            return
        kind = str(answer.get("component")) if isinstance(answer, dict) else ""
        if kind not in kinds:
            return
        if is_readable(kind, answer):
            put(kind, answer)
        else:
            put("unreadable", {"name": name_in(kind, answer)})

    def put(kind: str, row: dict[str, Any]) -> None:
        if len(answers[kind]) < ANSWERS_MAX:
            answers[kind].append(row)

    subjects = map(ControlSubjects(control_root).status, kinds)
    await gather(connection, subjects, b"", keep)
    return answers
