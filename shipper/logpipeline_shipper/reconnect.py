"""Checks after each new connection that the server still has what it acknowledged, and then lets
sending begin.

The last message of a subject must be the one that was acknowledged last. That is checked before
anything new is sent, since new messages would hide a loss.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream, PubAck
from logpipeline_shipper.account import REMOVED, ROLLED_BACK
from logpipeline_shipper.checkpoint import LastAck
from logpipeline_shipper.message import Message
from logpipeline_shipper.resend import is_lost

log = logging.getLogger(__name__)

# A node may have no right to read its own subject: then no answer comes, and sending must not wait
# long for it.
LOOK_TIMEOUT_S = 2.0
LOOKS_AT_ONCE_MAX = 16


class LastAcks:
    """The last acknowledgement on each subject. *on_rollback* gets a stream whose sequences went
    back: what it acknowledged after that sequence is lost.
    """

    def __init__(self, last: Mapping[str, LastAck], on_rollback: Callable[[str], None]) -> None:
        self.last = dict(last)
        self._on_rollback = on_rollback
        self._highest: dict[str, int] = {}
        for ack in last.values():
            self._highest[ack.stream] = max(ack.sequence, self._highest.get(ack.stream, 0))

    def floor(self, subject: str) -> int:
        """Return the highest sequence acknowledged so far on the stream of *subject*."""
        last = self.last.get(subject)
        return self._highest.get(last.stream, 0) if last else 0

    def note(self, message: Message, ack: PubAck, floor: int) -> None:
        """Note an acknowledgement; *floor* was the highest sequence when its publish began."""
        if ack.duplicate:
            return
        known = self.last.get(message.subject)
        is_same_stream = known is not None and known.stream == ack.stream
        highest = self._highest.get(ack.stream, 0)
        # A floor above the highest sequence is from before a roll-back that is known already.
        went_back = is_same_stream and ack.sequence <= floor <= highest
        if went_back:
            highest = 0
        self._highest[ack.stream] = max(highest, ack.sequence)
        if went_back or known is None or known.sequence < ack.sequence or not is_same_stream:
            self.last[message.subject] = LastAck(
                ack.stream, ack.sequence, message.identifier, time.time()
            )
        if went_back:
            self._on_rollback(ack.stream)

    def subjects_of(self, stream: str) -> set[str]:
        """Return the subjects whose last acknowledgement came from *stream*."""
        return {subject for subject, ack in self.last.items() if ack.stream == stream}

    def forget(self, subject: str) -> None:
        """Forget the last acknowledgement on *subject*: its message is lost."""
        lost = self.last.pop(subject, None)
        if lost is not None:
            self._highest.pop(lost.stream, None)


class ReconnectCheck:
    """See the module. *on_loss* gets each subject of which acknowledged messages are gone, with the
    cause, and returns how many sources send something again; *on_open* is awaited each time when
    sending may begin.
    """

    def __init__(
        self,
        js: JetStream,
        acks: LastAcks,
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
        """Check each new connection, for ever."""
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
            # A missing answer proves no loss. It is also the only sign of a denied right.
            self._is_denied = ".direct.get." in (self._js.connection.problem or "").lower()
            log.warning("cannot check what the server still has; sending goes on")

    async def _look(self, subject: str) -> None:
        last = self._acks.last[subject]
        try:
            found = await self._js.last_message(last.stream, subject)
        except (NoResponders, NotSent, OutcomeUnknown, ApiError):
            return
        if not is_lost(last, found, time.time()):
            return
        self._acks.forget(subject)
        # Collected messages may be trimmed: a subject that is empty for that reason lost nothing.
        if self._on_loss(subject, REMOVED if found is None else ROLLED_BACK) or found is not None:
            log.error(
                "the server lost acknowledged messages; what is not collected is sent again",
                extra={
                    "subject": subject,
                    "acknowledged": last.sequence,
                    "found": found.sequence if found else None,
                },
            )
