"""What becomes of each message: archived, known already, or kept aside with a reason. None stops
the ones behind it.
"""

from __future__ import annotations

from logpipeline.messages import has_its_size, read_message
from logpipeline.nats.pull import Delivered
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage
from logpipeline_collector.deadletters import DeadLetters
from logpipeline_collector.tenure import Tenure


class Intake:
    """Gives the messages of all partitions their place."""

    def __init__(self, subjects: Subjects, dead_letters: DeadLetters) -> None:
        self._subjects = subjects
        self.dead_letters = dead_letters

    async def take(self, tenure: Tenure, delivered: Delivered) -> None:
        """Archive the message, or keep it aside, and move the tenure's position behind it.

        Raises:
            ArchiveFull: the disk is; nothing happened, and the same message may be given again.
        """
        if tenure.is_left_out(delivered):
            tenure.note_read(delivered)
            return
        try:
            read = read_message(self._subjects, tenure.partition, delivered)
            if read.batch is not None or not tenure.is_known_already(delivered):
                tenure.archive.take(
                    read.host,
                    read.batch,
                    delivered.message.data,
                    sequence=delivered.sequence,
                    time_ns=delivered.time_ns,
                )
        except BadMessage as error:
            tenure.dead_letters += 1
            await self.dead_letters.put(delivered, tenure, reason=error.reason, detail=str(error))
        tenure.note_read(delivered)

    def take_headers(self, tenure: Tenure, delivered: Delivered) -> None:
        """Note what another collector has archived of this message."""
        try:
            read = read_message(self._subjects, tenure.partition, delivered)
        except BadMessage:
            return  # Nobody archived it.
        if read.batch is not None and has_its_size(read.batch, read.fields):
            tenure.archive.take_headers(read.host, read.batch)
