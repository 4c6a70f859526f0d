"""Lines that a shipper sent again, since it could not know that they were stored: they stand twice
in a stream, under other ids. What stood there before is learned from the headers alone, and only
once such a message comes.
"""

from __future__ import annotations

import contextlib
import logging

from logpipeline.consuming.message import Message
from logpipeline.deadletters import RETRY_FOR
from logpipeline.knowledge import NOTHING, Knowledge, decide
from logpipeline.messages import Read, has_its_size, read_message
from logpipeline.nats import scan
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage

log = logging.getLogger(__name__)

# Sources that are known; the one that wrote longest ago is forgotten first, and what it sends again
# is handed out again.
SOURCES_MAX = 100_000


class Resends:
    """What a stream held before, as far as it was looked."""

    def __init__(self, js: JetStream, subjects: Subjects, stream: str, partition: int) -> None:
        self._js = js
        self._subjects = subjects
        self._stream = stream
        self._partition = partition
        self._known: dict[tuple[str, str], Knowledge] = {}
        self._last = 0

    async def cut(self, message: Message, created: str) -> bool:
        """Cut off *message* what the stream, *created* then, held before; return whether there is
        something left.
        """
        try:
            read = message.read
        except BadMessage:
            return True
        if read.batch is None or not read.batch.resend:
            return True
        if RETRY_FOR in read.fields:
            # It was given up, and comes again on purpose.
            return True
        try:
            await self._look_until(message.sequence - 1, created)
        except (scan.StreamChanged, ApiError) as error:
            log.warning(
                "lines that were sent again may be handed out twice",
                extra={"stream": self._stream, "reason": str(error)},
            )
            return True
        known = self._known.get((read.host, read.batch.source), NOTHING)
        message.parts = [(part.start, part.end) for part in decide(known, read.batch).ranges]
        return bool(message.parts)

    async def _look_until(self, last: int, created: str) -> None:
        if last <= self._last:
            return
        wanted = scan.Range(first=self._last + 1, last=last)
        looking = scan.Scan(self._js, self._stream, wanted, created=created, headers_only=True)
        async with contextlib.aclosing(looking.batches()) as parts:
            async for taken in parts:
                for delivered in taken:
                    self._learn(delivered)
        self._last = last

    def _learn(self, delivered: Delivered) -> None:
        read = _read(self._subjects, self._partition, delivered)
        if read is None or read.batch is None or not has_its_size(read.batch, read.fields):
            return
        name = (read.host, read.batch.source)
        # At the end, as the one that wrote last.
        self._known[name] = decide(self._known.pop(name, NOTHING), read.batch).after
        if len(self._known) > SOURCES_MAX:
            del self._known[next(iter(self._known))]


def is_for_another(delivered: Delivered, consumer: str) -> bool:
    """Return whether the message is one that another consumer had given up, and only it gets."""
    if RETRY_FOR.encode() not in delivered.message.headers:
        return False
    fields = [line.partition(b":") for line in delivered.message.headers.split(b"\r\n")]
    names = [value.strip() for name, _, value in fields if name == RETRY_FOR.encode()]
    return bool(names) and consumer.encode() not in names


def _read(subjects: Subjects, partition: int, delivered: Delivered) -> Read | None:
    try:
        return read_message(subjects, partition, delivered)
    except BadMessage:
        return None
