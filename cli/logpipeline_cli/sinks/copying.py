"""Opens a destination, writes a batch to it, and says what became of it. Nothing is held but the
batch in hand: a destination that is slow makes the reader wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

from logpipeline.consuming.message import PROCESSED, UNREADABLE, Batch, Outcome
from logpipeline.consuming.partition_reader import BACKOFF_S
from logpipeline.failpoints import reach
from logpipeline.wire import BadMessage
from logpipeline_cli.sinks.destination import Destination, Refused, TryAgain

log = logging.getLogger(__name__)


async def opened(destination: Destination, stop: asyncio.Event) -> bool:
    """Open *destination* once it is there, however long that takes; return False where *stop* comes
    first.

    Raises:
        Misdirected: it cannot be written to as it is.
    """
    for pause_s in itertools.chain(BACKOFF_S, itertools.repeat(BACKOFF_S[-1])):
        try:
            await destination.open()
        except TryAgain as error:
            log.warning("nothing is written yet: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause_s, error.after_s)):
                    await stop.wait()
        else:
            return True
        if stop.is_set():
            break
    return False


async def write(destination: Destination, batch: Batch, stopping: asyncio.Task[bool]) -> Outcome:
    """Write *batch*, and return what became of it.

    Raises:
        Misdirected: it cannot go on.
    """
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
