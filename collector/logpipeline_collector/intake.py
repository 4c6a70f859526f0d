"""Decides for each message: it is written, it is known already, or it becomes a dead letter with a
reason. No message stops those behind it.
"""

from __future__ import annotations

from dataclasses import replace

from logpipeline.dead_letters import RETRY_OF
from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.streamstate import StreamState, state_of
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch
from logpipeline_collector.dead_letters import DeadLetters
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.stream_position import StreamMissing

# Messages that were removed one by one, which a server lists in one answer. Where there are more,
# some are taken to be ours.
REMOVED_LISTED_MAX = 50_000


class Intake:
    """Takes the messages of all partitions; those that cannot be used go to *dead_letters*."""

    def __init__(self, js: JetStream, subjects: Subjects, dead_letters: DeadLetters) -> None:
        self._js = js
        self._subjects = subjects
        self.dead_letters = dead_letters

    async def take(self, owned: OwnedPartition, delivered: Delivered) -> None:
        """Write the message, or keep it as a dead letter, and move the position behind it.

        Raises:
            SinkFull: there is no room; nothing happened, and the message may be given again.
            StreamMissing, NotSent, OutcomeUnknown, ApiError: whether something was missed before it
                could not be asked; nothing happened.
        """
        # Before the decision: behind a gap, a source's first message is not the source's begin.
        owned.note_gap(delivered)
        if owned.is_left_out(delivered):
            owned.note_read(delivered)
            return
        read: Read | None = None
        is_read_again = owned.is_known_already(delivered)
        try:
            read = read_message(self._subjects, owned.partition, delivered)
            if read.batch is not None and owned.may_begin_too_late(read.host, read.batch):
                await self._look_behind(owned, delivered)
            if read.batch is not None or not is_read_again:
                owned.writer.take(
                    read.host,
                    _batch_of(read),
                    delivered.message.data,
                    sequence=delivered.sequence,
                    time_ns=delivered.time_ns,
                    is_read_again=is_read_again,
                )
        except BadMessage as error:
            owned.dead_letters += 1
            if read is not None:
                owned.refuse(delivered.sequence)
            await self.dead_letters.put(delivered, owned, reason=error.reason, detail=str(error))
        owned.note_read(delivered)

    async def _look_behind(self, owned: OwnedPartition, delivered: Delivered) -> None:
        """Note what has left the stream between the position and *delivered*."""
        info = await self._js.stream_info(owned.stream)
        if info is None:
            raise StreamMissing(owned.stream)
        stream = state_of(info)
        owned.note_gap(delivered, stream)
        between = range(owned.position.sequence + 1, delivered.sequence)
        if stream.removed and between and await self._is_any_removed(owned.stream, stream, between):
            owned.writer.expect_all()

    async def _is_any_removed(self, name: str, stream: StreamState, between: range) -> bool:
        if stream.removed > REMOVED_LISTED_MAX:
            return True
        answer = await self._js.call(f"STREAM.INFO.{name}", {"deleted_details": True})
        return any(sequence in between for sequence in answer["state"].get("deleted") or ())

    def learn(self, owned: OwnedPartition, delivered: Delivered, *, has_payload: bool) -> None:
        """Note what another collector has written of this message.

        Raises:
            PayloadNeeded: the message has no payload here (*has_payload*), and it decides.
        """
        if delivered.sequence in owned.refused:
            return
        try:
            read = read_message(self._subjects, owned.partition, delivered)
            batch = _batch_of(read)
            headers = delivered.message.headers
            if batch is None or not (has_payload or has_its_size(batch, headers)):
                return
            payload = delivered.message.data if has_payload else None
            owned.writer.learn(read.host, batch, payload)
        except BadMessage:
            return  # No collector wrote it.


def _batch_of(read: Read) -> Batch | None:
    # The bytes of a letter that is sent again may have come in another message meanwhile.
    is_letter = read.batch is not None and RETRY_OF in read.fields
    return replace(read.batch, resend=True) if read.batch and is_letter else read.batch
