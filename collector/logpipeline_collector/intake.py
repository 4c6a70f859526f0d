"""What becomes of each message: archived, known already, or kept aside with a reason. None stops
the ones behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.nats.pull import Delivered
from logpipeline.subjects import BadHost, BadSubject, Subjects
from logpipeline.wire import BadMessage, Batch, decode_headers, parse_headers
from logpipeline_collector.deadletters import DeadLetters
from logpipeline_collector.tenure import Tenure

# nats-server tells a reader of headers alone how large the payload is.
SIZE_HEADER = "Nats-Msg-Size"


@dataclass(frozen=True, slots=True)
class Read:
    """A message whose subject and headers can be believed; *batch* is None for a stranger's."""

    host: str
    batch: Batch | None
    fields: dict[str, str]


def read_message(subjects: Subjects, partition: int, delivered: Delivered) -> Read:
    """Return host and headers of a message of *partition*.

    Raises:
        BadMessage: its subject or headers cannot be; the error's reason says which.
    """
    message = delivered.message
    try:
        named, host = subjects.read(message.subject.decode("utf-8", "surrogateescape"))
    except BadHost as error:
        raise BadMessage("bad-host", str(error)) from error
    except BadSubject as error:
        raise BadMessage("bad-subject", str(error)) from error
    if named != partition:
        raise BadMessage("bad-subject", f"partition {named} in the stream of {partition}")
    fields = parse_headers(message.headers) if message.headers else {}
    return Read(host, decode_headers(fields) if fields else None, fields)


def host_for_limit(subjects: Subjects, delivered: Delivered) -> str:
    """Return the host of a bad message, or an empty text where it has none that could be one."""
    try:
        return subjects.read(delivered.message.subject.decode("utf-8", "surrogateescape"))[1]
    except (BadHost, BadSubject):
        return ""


class Intake:
    """Gives the messages of all partitions their place."""

    def __init__(self, subjects: Subjects, dead_letters: DeadLetters) -> None:
        self._subjects = subjects
        self._dead_letters = dead_letters

    async def take(self, tenure: Tenure, delivered: Delivered) -> None:
        """Archive the message, or keep it aside, and move the tenure's position behind it.

        Raises:
            ArchiveFull: the disk is; nothing happened, and the same message may be given again.
        """
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
            await self._dead_letters.put(
                delivered,
                stream=tenure.stream,
                created=tenure.position.created,
                partition=tenure.partition,
                host=host_for_limit(self._subjects, delivered),
                reason=error.reason,
                detail=str(error),
            )
        tenure.note_read(delivered)

    def take_headers(self, tenure: Tenure, delivered: Delivered) -> None:
        """Note what another collector has archived of this message."""
        try:
            read = read_message(self._subjects, tenure.partition, delivered)
        except BadMessage:
            return  # Nobody archived it.
        if read.batch is not None and _has_its_size(read.batch, read.fields):
            tenure.archive.take_headers(read.host, read.batch)


def _has_its_size(batch: Batch, fields: dict[str, str]) -> bool:
    # A range that its payload contradicts was not archived, so it must not count as known. Of a
    # compressed payload the size says nothing.
    size = fields.get(SIZE_HEADER, "")
    return batch.compressed or not size.isdigit() or int(size) == batch.end - batch.start
