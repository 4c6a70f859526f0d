"""Asks the callouts of a managed server whom they refused."""

from __future__ import annotations

import asyncio

from logpipeline.authority import CALLOUT
from logpipeline.nats.connection import Connection
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects
from logpipeline_operator.callout.refusals import Refusals

# Across a network answers take some tens of milliseconds.
ANSWERS_WAIT_S = 0.4
# A cluster has three servers, with a callout each.
ANSWERS_MAX = 16


async def refusals(connection: Connection, pipeline: LogPipeline) -> tuple[Refusals, ...]:
    """Return what the callouts beside the pipeline's servers answer.

    Raises:
        NotSent: there is no connection.
    """
    if pipeline.spec.nats.servers:
        return ()
    answers: dict[str, Refusals] = {}

    def keep(message: RawMessage) -> None:
        answer = Refusals.decode(message.data)
        if answer is not None and len(answers) < ANSWERS_MAX:
            answers[answer.name] = answer

    inbox = connection.new_inbox()
    listener = await connection.listen(inbox, keep)
    try:
        subject = ControlSubjects(pipeline.names.control_subject).status(CALLOUT)
        await connection.publish(subject, b"", reply=inbox)
        await asyncio.sleep(ANSWERS_WAIT_S)
    finally:
        await connection.unlisten(listener)
    return tuple(answers[name] for name in sorted(answers))
