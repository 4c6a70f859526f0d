"""Sends one message until its outcome is known.

An answer that does not come means nothing: the same bytes go again under the same id, marked, for
as long as it takes. `outcomes` decides what each failure means; here it is carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from logpipeline.failpoints import reach
from logpipeline.nats.connection import NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import ApiError, JetStream, PubAck
from logpipeline_shipper.outcomes import Verdict, advice, judge
from logpipeline_shipper.parcels import Parcel

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 5.0
# A server that syncs each message answers 1,000 a second: with 10,000 sources of a host at once,
# most acknowledgements would come too late, and their batches be sent twice.
IN_FLIGHT_PER_SUBJECT_MAX = 64
# The server works on the same id right now; its answer is a matter of milliseconds.
IN_PROCESS_WAIT_S = 0.05


class Unsendable(Exception):
    """The message will never be taken as it is; *is_too_large* says that smaller ones may be."""

    def __init__(self, reason: str, *, is_too_large: bool) -> None:
        self.reason = reason
        self.is_too_large = is_too_large
        super().__init__(reason)


class IdTaken(Exception):
    """The server knows the id of a message that was never sent: somebody else used it, and the
    message was dropped. The same bytes need another id.
    """


class Gate(Protocol):
    """What is waited for before each try: a connection, and a look at what the server still has."""

    async def wait(self) -> None:
        """Return when sending may begin."""


class Sender:
    """Publishes for all sources. *on_ack* gets subject, id, acknowledgement and the highest
    sequence that was acknowledged on that stream when this try began.
    """

    def __init__(
        self,
        js: JetStream,
        gate: Gate,
        *,
        ack_timeout_s: float,
        on_ack: Callable[[Parcel, PubAck, int], None],
        floor: Callable[[str], int],
    ) -> None:
        self.acks = 0
        self.unacknowledged = 0
        self.acked_bytes = 0
        self.duplicates = 0
        self.resends = 0
        self.retries: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self._js = js
        self._gate = gate
        self._ack_timeout_s = ack_timeout_s
        self._on_ack = on_ack
        self._floor = floor
        self._turns: dict[str, asyncio.Semaphore] = {}

    def check_size(self, parcel: Parcel) -> None:
        """Refuse what the server's ``max_payload`` forbids, before anything is noted or sent.

        Raises:
            Unsendable: it is too large.
        """
        size, limit = parcel.size(), self._js.connection.max_payload_bytes
        if size > limit:
            raise Unsendable(str(TooLarge(size, limit)), is_too_large=True)

    async def send(self, parcel: Parcel, *, resend: bool) -> PubAck:
        """Publish *parcel* until the server says that it is stored, and return what it said.
        *resend*: it may be already.

        Raises:
            Unsendable: the server will never take it.
            IdTaken: the server has another message of this id.
        """
        waiting_s = BACKOFF_FIRST_S
        try:
            while True:
                await self._gate.wait()
                try:
                    async with self._turn(parcel.subject):
                        ack = await self._try(parcel, resend=resend)
                    if ack.duplicate and not resend:
                        raise IdTaken(parcel.identifier)
                    return ack
                except (ApiError, NotSent, OutcomeUnknown) as error:
                    verdict = judge(error)
                    if verdict in (Verdict.SPLIT, Verdict.REFUSED):
                        is_too_large = verdict is Verdict.SPLIT
                        raise Unsendable(str(error), is_too_large=is_too_large) from error
                    if verdict is Verdict.UNKNOWN:
                        # From here on it is known to have been sent.
                        resend, parcel = True, parcel.known_as_sent()
                    self._note_problem(parcel.subject, verdict, error)
                if verdict is Verdict.SOON:
                    await asyncio.sleep(IN_PROCESS_WAIT_S)
                else:
                    await asyncio.sleep(waiting_s)
                    waiting_s = min(2 * waiting_s, BACKOFF_MAX_S)
        finally:
            self._note_solved(parcel.subject)

    async def send_unacknowledged(self, parcel: Parcel, *, resend: bool) -> None:
        """Publish *parcel* once there is a connection, and do not ask what became of it."""
        while True:
            await self._gate.wait()
            try:
                headers = None if parcel.is_line else parcel.headers(resend=resend)
                await self._js.connection.publish(parcel.subject, parcel.payload, headers=headers)
                self.unacknowledged += 1
                return
            except TooLarge as error:
                raise Unsendable(str(error), is_too_large=True) from error
            except NotSent:
                self.retries[Verdict.NOT_SENT.value] += 1
                await asyncio.sleep(BACKOFF_FIRST_S)

    async def _try(self, parcel: Parcel, *, resend: bool) -> PubAck:
        reach("shipper.before-send")
        floor = self._floor(parcel.subject)
        self.resends += resend
        ack = await self._js.publish(
            parcel.subject,
            parcel.payload,
            parcel.headers(resend=resend),
            timeout_s=self._ack_timeout_s,
        )
        # Sent and stored, and nobody here knows it yet: the same as an answer that was lost.
        reach("shipper.after-send")
        self.acks += 1
        self.acked_bytes += parcel.batch.end - parcel.batch.start
        self.duplicates += ack.duplicate
        self._on_ack(parcel, ack, floor)
        return ack

    def _turn(self, subject: str) -> asyncio.Semaphore:
        if subject not in self._turns:
            self._turns[subject] = asyncio.Semaphore(IN_FLIGHT_PER_SUBJECT_MAX)
        return self._turns[subject]

    def _note_problem(self, subject: str, verdict: Verdict, error: Exception) -> None:
        self.retries[verdict.value] += 1
        if verdict in (Verdict.SOON, Verdict.NOT_SENT):
            return
        text = advice(verdict, subject, error)
        if subject not in self.problems:
            log.warning("a batch cannot be delivered yet", extra={"reason": text})
        self.problems[subject] = text

    def _note_solved(self, subject: str) -> None:
        if self.problems.pop(subject, None) is not None:
            log.info("batches are delivered again", extra={"subject": subject})
