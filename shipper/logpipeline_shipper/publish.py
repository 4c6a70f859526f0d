"""Publishes a message until its outcome is known. What a failure means for the bytes is decided by
a pure function, `classify`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from logpipeline.failpoints import reach
from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import STILL_IN_PROCESS, ApiError, JetStream, PubAck
from logpipeline_shipper.message import Message

# Error codes of nats-server (its errors.json) that say that the message itself is wrong. All other
# refusals concern a stream, an account or a server, and end when a limit is raised, or something is
# trimmed, unsealed or repaired. A list of those would lack the ones of the next release.
MESSAGE_EXCEEDS_STREAM_MAXIMUM = 10054
HEADERS_EXCEED_MAXIMUM = 10097

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 5.0
# A server that syncs each message acknowledges 1,000 a second. If 10,000 sources of a host sent at
# once, most acknowledgements would come too late, and the batches be sent twice.
IN_FLIGHT_PER_SUBJECT_MAX = 64
# The server is just storing a message with the same id: that takes milliseconds.
IN_PROCESS_WAIT_S = 0.05


# A message is put aside only if the message itself is wrong. If the stream, the server or the
# network has a problem, the shipper waits: the file is the buffer.
class PublishFailure(Enum):
    """The meaning of a failed publish for its bytes, and so the next step."""

    UNKNOWN = "unknown"  # they may be stored: send them again under the same id, marked
    NOT_SENT = "not-sent"  # they are certainly not stored: send them again
    NO_STREAM = "no-stream"  # no stream has the subject: wait until one has
    FULL = "full"  # the stream refuses messages, for whatever reason: wait
    SOON = "soon"  # the server is busy with the same id: send them again in a moment
    SPLIT = "split"  # too large as one message
    REFUSED = "refused"  # the message will never be accepted: quarantine


def classify(error: Exception) -> PublishFailure:
    """Return what *error* means for the bytes that should be sent."""
    match error:
        case TooLarge():
            return PublishFailure.SPLIT
        case NoResponders():
            return PublishFailure.NO_STREAM
        case NotSent():
            return PublishFailure.NOT_SENT
        case OutcomeUnknown():
            return PublishFailure.UNKNOWN
        case ApiError():
            return _classify_refusal(error)
    raise error


def _classify_refusal(error: ApiError) -> PublishFailure:
    match error.err_code:
        case code if code == STILL_IN_PROCESS:
            return PublishFailure.SOON
        case code if code == MESSAGE_EXCEEDS_STREAM_MAXIMUM:
            return PublishFailure.SPLIT
        case code if code == HEADERS_EXCEED_MAXIMUM:
            return PublishFailure.REFUSED
    return PublishFailure.FULL


def advice(failure: PublishFailure, subject: str, error: Exception) -> str:
    """Return the message for users while *failure* lasts."""
    match failure:
        case PublishFailure.NO_STREAM:
            return f"no stream has the subject {subject}; run `logpipeline apply`"
        case PublishFailure.FULL:
            return f"the stream refuses messages on {subject}: {error}; lines wait in their files"
        case PublishFailure.UNKNOWN:
            return f"no acknowledgement on {subject}: {error}; the same batch is sent again"
    return f"waiting to send on {subject}: {error}"


# A missing acknowledgement proves nothing: the same bytes are sent again under the same id, marked,
# until one comes.
class Unsendable(Exception):
    """The message will never be accepted; *is_too_large*: smaller ones may be."""

    def __init__(self, reason: str, *, is_too_large: bool) -> None:
        self.reason = reason
        self.is_too_large = is_too_large
        super().__init__(reason)


class IdTaken(Exception):
    """The server has another message with this id, which was sent for the first time: another
    program used the id, and the message was dropped. The same bytes need another id.
    """


class SendGate(Protocol):
    """Opens for each try once there is a connection, and the check of lost messages is done."""

    async def wait(self) -> None:
        """Return when sending may begin."""


class Sender:
    """Publishes for all sources. *on_ack* gets the message, its acknowledgement, and the highest
    sequence that the stream had acknowledged when this try began.
    """

    def __init__(
        self,
        js: JetStream,
        gate: SendGate,
        *,
        ack_timeout_s: float,
        on_ack: Callable[[Message, PubAck, int], None],
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

    def check_size(self, message: Message) -> None:
        """Refuse a message above the server's ``max_payload``, before anything is noted or sent.

        Raises:
            Unsendable: it is too large.
        """
        size, limit = message.size(), self._js.connection.max_payload_bytes
        if size > limit:
            raise Unsendable(str(TooLarge(size, limit)), is_too_large=True)

    async def send(self, message: Message, *, resend: bool) -> PubAck:
        """Publish *message* until the server acknowledges it, and return the acknowledgement.
        *resend*: it may be stored already.

        Raises:
            Unsendable: the server will never accept it.
            IdTaken: the server has another message of this id.
        """
        waiting_s = BACKOFF_FIRST_S
        try:
            while True:
                await self._gate.wait()
                try:
                    async with self._turn(message.subject):
                        ack = await self._try(message, resend=resend)
                    if ack.duplicate and not resend:
                        raise IdTaken(message.identifier)
                    return ack
                except (ApiError, NotSent, OutcomeUnknown) as error:
                    failure = classify(error)
                    if failure in (PublishFailure.SPLIT, PublishFailure.REFUSED):
                        is_too_large = failure is PublishFailure.SPLIT
                        raise Unsendable(str(error), is_too_large=is_too_large) from error
                    if failure is PublishFailure.UNKNOWN:
                        # From here on it is certain that it was sent.
                        resend, message = True, message.known_as_sent()
                    self._note_problem(message.subject, failure, error)
                if failure is PublishFailure.SOON:
                    await asyncio.sleep(IN_PROCESS_WAIT_S)
                else:
                    await asyncio.sleep(waiting_s)
                    waiting_s = min(2 * waiting_s, BACKOFF_MAX_S)
        finally:
            self._note_solved(message.subject)

    async def send_unacknowledged(self, message: Message, *, resend: bool) -> None:
        """Publish *message* once there is a connection, without an acknowledgement."""
        while True:
            await self._gate.wait()
            try:
                headers = None if message.is_line else message.headers(resend=resend)
                await self._js.connection.publish(message.subject, message.payload, headers=headers)
                self.unacknowledged += 1
                return
            except TooLarge as error:
                raise Unsendable(str(error), is_too_large=True) from error
            except NotSent:
                self.retries[PublishFailure.NOT_SENT.value] += 1
                await asyncio.sleep(BACKOFF_FIRST_S)

    async def _try(self, message: Message, *, resend: bool) -> PubAck:
        reach("shipper.before-send")
        floor = self._floor(message.subject)
        self.resends += resend
        ack = await self._js.publish(
            message.subject,
            message.payload,
            message.headers(resend=resend),
            timeout_s=self._ack_timeout_s,
        )
        # Stored, and not yet noted here: a kill now is the same as a lost acknowledgement.
        reach("shipper.after-send")
        self.acks += 1
        self.acked_bytes += message.batch.end - message.batch.start
        self.duplicates += ack.duplicate
        self._on_ack(message, ack, floor)
        return ack

    def _turn(self, subject: str) -> asyncio.Semaphore:
        if subject not in self._turns:
            self._turns[subject] = asyncio.Semaphore(IN_FLIGHT_PER_SUBJECT_MAX)
        return self._turns[subject]

    def _note_problem(self, subject: str, failure: PublishFailure, error: Exception) -> None:
        self.retries[failure.value] += 1
        if failure in (PublishFailure.SOON, PublishFailure.NOT_SENT):
            return
        text = advice(failure, subject, error)
        if subject not in self.problems:
            log.warning(
                "a batch cannot be delivered yet; it is tried again", extra={"reason": text}
            )
        self.problems[subject] = text

    def _note_solved(self, subject: str) -> None:
        if self.problems.pop(subject, None) is not None:
            log.info("batches are delivered again", extra={"subject": subject})
