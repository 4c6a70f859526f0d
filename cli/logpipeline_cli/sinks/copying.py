"""Copies batches from a reader to a destination, one after the other: a destination that is slow
makes the reader wait, and nothing is held but the batch in hand.
"""

from __future__ import annotations

import asyncio
import logging

from logpipeline.consuming.message import PROCESSED, UNREADABLE, Batch, Outcome
from logpipeline.consuming.reader import Reader
from logpipeline.failpoints import reach
from logpipeline.wire import BadMessage
from logpipeline_cli.sinks.destination import Destination, Refused, TryAgain

log = logging.getLogger(__name__)


async def copy(reader: Reader, destination: Destination, stop: asyncio.Event) -> None:
    """Copy batches until *stop* is set or the reader is at its end. The batch in hand is finished.

    Raises:
        Misdirected, ConsumeError: it cannot go on.
    """
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and (batch := await _next(reader, stopping)) is not None:
            batch.outcome = await _written(destination, batch, stopping)
            await reader.settle()
    finally:
        stopping.cancel()


async def _next(reader: Reader, stopping: asyncio.Task[bool]) -> Batch | None:
    """Return the next batch, or None if no more are wanted."""
    waiting = asyncio.create_task(reader.next())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def _written(destination: Destination, batch: Batch, stopping: asyncio.Task[bool]) -> Outcome:
    try:
        await destination.write(batch)
    except TryAgain as error:
        # The reader's own record of it holds the reason in a field, which a terminal does not show.
        log.warning("not written yet: %s", error)
        if error.after_s:
            # The reader's own pause between two tries is added to it.
            await asyncio.wait({stopping}, timeout=error.after_s)
        return Outcome("retry", str(error))
    except Refused as error:
        return Outcome("reject", str(error))
    except BadMessage as error:
        # The consumer gets headers only; the reader hands out no other such message.
        return Outcome(UNREADABLE, f"it cannot be decoded: {error}")
    # It is written, and its position is not kept yet.
    reach("sink.written")
    return PROCESSED
