"""What becomes of each message: archived, known already, or kept aside with a reason. None stops
the ones behind it.
"""

from __future__ import annotations

from dataclasses import replace

from logpipeline.dead_letters import RETRY_OF
from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats.pull import Delivered
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch
from logpipeline_collector.dead_letters import DeadLetters
from logpipeline_collector.owned_partition import OwnedPartition


class Intake:
    """Gives the messages of all partitions their place."""

    def __init__(self, subjects: Subjects, dead_letters: DeadLetters) -> None:
        self._subjects = subjects
        self.dead_letters = dead_letters

    async def take(self, owned: OwnedPartition, delivered: Delivered) -> None:
        """Archive the message, or keep it aside, and move the owned's position behind it.

        Raises:
            SinkFull: the disk is; nothing happened, and the same message may be given again.
        """
        if owned.is_left_out(delivered):
            owned.note_read(delivered)
            return
        read: Read | None = None
        is_read_again = owned.is_known_already(delivered)
        try:
            read = read_message(self._subjects, owned.partition, delivered)
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

    def learn(self, owned: OwnedPartition, delivered: Delivered, *, has_payload: bool) -> None:
        """Note what another collector has archived of this message.

        Raises:
            PayloadNeeded: the message *has_payload* not, and nothing else tells.
        """
        if delivered.sequence in owned.refused:
            return
        try:
            read = read_message(self._subjects, owned.partition, delivered)
            batch = _batch_of(read)
            if batch is None or not (has_payload or has_its_size(batch, read.fields)):
                return
            payload = delivered.message.data if has_payload else None
            owned.writer.learn(read.host, batch, payload)
        except BadMessage:
            return  # Nobody archived it.


def _batch_of(read: Read) -> Batch | None:
    # A letter that is sent again may have been made up for meanwhile.
    is_letter = read.batch is not None and RETRY_OF in read.fields
    return replace(read.batch, resend=True) if read.batch and is_letter else read.batch
