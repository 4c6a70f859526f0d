"""Asks the running parts of a pipeline how they are; each answers for itself, and none has to."""

from __future__ import annotations

import json
from typing import Any

from logpipeline.nats.connection import Connection
from logpipeline.nats.gathering import gather
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import ControlSubjects

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

    subjects = map(ControlSubjects(control_root).status, answers)
    await gather(connection, subjects, b"", keep)
    return answers
