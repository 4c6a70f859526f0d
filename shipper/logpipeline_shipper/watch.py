"""Opens the gate for sending: a connection, and after each new one a look at what the server kept.

The last message of a subject of ours must be the one that was acknowledged last. Looked at before
anything new is sent, since new messages would hide what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline_shipper.account import REMOVED, ROLLED_BACK
from logpipeline_shipper.acks import Acks
from logpipeline_shipper.healing import is_lost

log = logging.getLogger(__name__)

# A node may lack the right to read its own subject; sending must not wait long for an answer then.
LOOK_TIMEOUT_S = 2.0
LOOKS_AT_ONCE_MAX = 16


class Watch:
    """The gate. *on_loss* gets each subject of which acknowledged messages are gone, with what
    became of them, and returns of how many sources something is to be sent again; *on_open* is
    awaited each time when sending may begin.
    """

    def __init__(
        self,
        js: JetStream,
        acks: Acks,
        on_loss: Callable[[str, str], int],
        on_open: Callable[[], Awaitable[None]],
    ) -> None:
        self._js = js
        self._acks = acks
        self._on_loss = on_loss
        self._on_open = on_open
        self._open = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_denied = False
        js.connection.on_change(self._note_change)

    async def wait(self) -> None:
        """Return when sending may begin."""
        await self._open.wait()

    async def run(self) -> None:
        """Look at each new connection, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            sessions = self._js.connection.sessions
            await self._look_at_all()
            if self._js.connection.is_connected and self._js.connection.sessions == sessions:
                self._open.set()
                await self._on_open()

    def _note_change(self) -> None:
        self._open.clear()
        if self._js.connection.is_connected:
            self._changed.set()

    async def _look_at_all(self) -> None:
        subjects = list(self._acks.last)
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                for first in range(0, len(subjects), LOOKS_AT_ONCE_MAX):
                    if self._is_denied:
                        return
                    some = subjects[first : first + LOOKS_AT_ONCE_MAX]
                    await asyncio.gather(*(self._look(subject) for subject in some))
        except TimeoutError:
            # An answer that does not come is no evidence; a denied right shows in this way only.
            self._is_denied = ".direct.get." in (self._js.connection.problem or "").lower()
            log.warning("cannot look at what the server kept; sending goes on")

    async def _look(self, subject: str) -> None:
        last = self._acks.last[subject]
        try:
            found = await self._js.last_message(last.stream, subject)
        except (NoResponders, NotSent, OutcomeUnknown, ApiError):
            return
        if not is_lost(last, found, time.time()):
            return
        self._acks.forget(subject)
        # What is archived may be trimmed away: a subject that is empty for that has lost nothing.
        if self._on_loss(subject, REMOVED if found is None else ROLLED_BACK) or found is not None:
            log.error(
                "the server lost acknowledged messages; what is not archived is sent again",
                extra={
                    "subject": subject,
                    "acknowledged": last.sequence,
                    "found": found.sequence if found else None,
                },
            )
