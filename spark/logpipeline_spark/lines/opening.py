"""Opens messages: what their headers say, whose they are, and their exact bytes. What cannot be
believed is kept as it came, never raised: one bad message must not stop a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from logpipeline.subjects import BadHost, BadSubject, Subjects
from logpipeline.wire import BadMessage, Batch, decode_headers, decode_payload, parse_headers
from logpipeline_spark.lines.message import Message
from logpipeline_spark.lines.schema import Origin

# Uncompressed bytes that are worked on at a time; one message may be larger (its own limit is
# wire.BATCH_BYTES_MAX, or the server's max_payload). Larger groups were no faster.
GROUP_BYTES_MAX = 8 * 1024 * 1024


@dataclass(slots=True)
class Opened:
    """A message whose headers were read. *data* is the source's bytes, for a message without our
    headers with the newline that its sender left out. *reason* says why it cannot be believed.
    """

    message: Message
    host: str | None
    partition: int | None
    batch: Batch | None
    data: bytes
    reason: str = ""

    @property
    def is_marked(self) -> bool:
        """Whether somebody must look up if these bytes came before."""
        return self.batch is not None and self.batch.resend and not self.reason

    @property
    def is_resent(self) -> bool:
        """Whether it is known to have been sent again; a shipper without positions marks all that
        it finds, and knows of no earlier sending.
        """
        return self.is_marked and self.batch is not None and not self.batch.unsure


def groups(
    messages: Iterable[Message], origin: Origin, *, bytes_max: int = GROUP_BYTES_MAX
) -> Iterator[list[Opened]]:
    """Yield *messages* opened, in their order, in groups of *bytes_max* uncompressed bytes; without
    those that name bytes as lost, which have no lines, and whose bytes may still turn up.
    """
    subjects = Subjects(origin.root, origin.partitions)
    group: list[Opened] = []
    size = 0
    for message in messages:
        opened = _open(message, subjects)
        if opened.batch is not None and opened.batch.lost:
            continue
        if group and size + len(opened.data) > bytes_max:
            yield group
            group, size = [], 0
        group.append(opened)
        size += len(opened.data)
    if group:
        yield group


def _open(message: Message, subjects: Subjects) -> Opened:
    partition, host = None, None
    try:
        partition, host = subjects.read(message.subject)
        batch = decode_headers(parse_headers(message.headers)) if message.headers else None
        if batch is None:
            return Opened(message, host, partition, None, message.data + b"\n")
        data = decode_payload(batch, message.data)
        return Opened(message, host, partition, batch, data)
    except (BadMessage, BadSubject, BadHost) as error:
        reason = error.reason if isinstance(error, BadMessage) else "bad-subject"
        return Opened(message, host, partition, None, message.data, reason)
