"""Asks the running parts of a pipeline how they are; each answers for itself, and none has to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import ControlSubjects

# Parts on one machine answer within milliseconds, across a network within some tens of them.
ANSWERS_WAIT_S = 0.4
ANSWERS_MAX = 10_000


async def ask(connection: Connection, control_root: str) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of all shippers and collectors that came in time, by kind."""
    answers: dict[str, list[dict[str, Any]]] = {"shipper": [], "collector": []}

    def keep(message: RawMessage) -> None:
        try:
            answer = json.loads(message.data)
        except ValueError:
            return
        kind = answer.get("component") if isinstance(answer, dict) else None
        if kind in answers and len(answers[kind]) < ANSWERS_MAX:
            answers[kind].append(answer)

    inbox = connection.new_inbox()
    listener = await connection.listen(inbox, keep)
    try:
        for kind in answers:
            await connection.publish(ControlSubjects(control_root).status(kind), b"", reply=inbox)
        await asyncio.sleep(ANSWERS_WAIT_S)
    finally:
        await connection.unlisten(listener)
    return answers
