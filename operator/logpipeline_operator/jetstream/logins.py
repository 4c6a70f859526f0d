"""Asks the callouts of a managed server whom they refused."""

from __future__ import annotations

from logpipeline.authority import CALLOUT
from logpipeline.nats.connection import Connection
from logpipeline.nats.gathering import gather
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipeline
from logpipeline.subjects import ControlSubjects
from logpipeline_operator.callout.refusals import Refusals

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

    subject = ControlSubjects(pipeline.names.control_subject).status(CALLOUT)
    await gather(connection, [subject], b"", keep)
    return tuple(answers[name] for name in sorted(answers))
