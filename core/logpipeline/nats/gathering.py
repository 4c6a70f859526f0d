"""Asks all who listen at a subject, and hears those that answer in time; none has to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from logpipeline.nats.connection import Connection
from logpipeline.nats.session import Sink

# Parts on one machine answer within milliseconds, across a network within some tens of them.
ANSWERS_WAIT_S = 0.4


async def gather(
    connection: Connection, subjects: Iterable[str], question: bytes, keep: Sink
) -> None:
    """Ask *question* at *subjects*, and call *keep* with each answer of the next moment.

    Raises:
        NotSent: there is no connection.
    """
    inbox = connection.new_inbox()
    listener = await connection.listen(inbox, keep)
    try:
        for subject in subjects:
            await connection.publish(subject, question, reply=inbox)
        await asyncio.sleep(ANSWERS_WAIT_S)
    finally:
        await connection.unlisten(listener)
