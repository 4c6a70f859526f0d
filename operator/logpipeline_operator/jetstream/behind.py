"""Asks the shippers which of them are behind, and keeps what a status can use of the answers."""

from __future__ import annotations

from logpipeline.behind import Behind, decode, question
from logpipeline.nats.connection import Connection
from logpipeline.nats.gathering import gather
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects

# Where more are behind, the number of nodes no longer matters.
ANSWERS_MAX = 2000


async def behind(connection: Connection, pipeline: LogPipeline) -> tuple[Behind, ...]:
    """Return the answers of shippers that are behind, or have a problem, by their names.

    Raises:
        NotSent: there is no connection.
    """
    if not pipeline.spec.shippers.enabled:
        return ()
    answers: dict[str, Behind] = {}

    def keep(message: RawMessage) -> None:
        answer = decode(message.data)
        if answer is not None and len(answers) < ANSWERS_MAX:
            answers[answer.name] = answer

    subject = ControlSubjects(pipeline.names.control_subject).status("shipper")
    await gather(connection, [subject], question(), keep)
    return tuple(answers[name] for name in sorted(answers))
