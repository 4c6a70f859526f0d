"""Messages that the server deleted before a reader got to them. They are counted, logged, and kept
in the pipeline's bucket, where `status` finds them.
"""

from __future__ import annotations

import logging
import time

from logpipeline.consuming.message import moment_of
from logpipeline.consuming.missed_records import decoded, missed_key
from logpipeline.consuming.partition_reader import Reading
from logpipeline.nats.bucket import Bucket, Conflict
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.tables.progress import Missed, MissedRange

log = logging.getLogger(__name__)


class Misses:
    """What the consumer of *reading* missed of *stream*, which holds *partition*."""

    def __init__(self, reading: Reading, stream: str, partition: int) -> None:
        self._reading = reading
        self._stream = stream
        self._key = missed_key(reading.options.name, partition)
        self._bucket = Bucket(reading.js, reading.pipeline.names.state_bucket)
        # Of an ephemeral consumer, whose name is never used again, nothing is kept elsewhere.
        self._own = Missed()

    async def note(self, created: str, first: int, last: int, *, after: int, before: int) -> None:
        """Note that the messages *first* to *last* of the stream, which was *created* then, were
        deleted before they were read; however long the server is away. They were stored between the
        times *after* and *before*, in nanoseconds since 1970, 0 where that is not known.

        What was noted before, here or by another member, is noted once.

        Raises:
            Denied, ApiError: the server refuses to keep it.
        """
        gone = MissedRange(created=created, first=first, last=last, at_ns=time.time_ns())
        if self._reading.options.ephemeral:
            former, self._own = self._own, self._own.with_range(self._stream, gone)
            self._say(gone, self._own.messages - former.messages, after, before)
            return
        is_said = False
        while True:
            try:
                entry = await self._bucket.get(self._key)
                former = decoded(entry)
                known = former.with_range(self._stream, gone)
                if known == former:
                    return
                if not is_said:
                    # Before it is kept: what is kept is not said again.
                    self._say(gone, known.messages - former.messages, after, before)
                    is_said = True
                revision = entry.revision if entry is not None else 0
                await self._bucket.swap(self._key, known.encode(), revision=revision)
            except Conflict:
                continue
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self._reading.js.wait_after(error)
            else:
                return

    def _say(self, gone: MissedRange, messages: int, after: int, before: int) -> None:
        if not messages:
            return
        self._reading.counts.missed += messages
        # The newest of them are new; those before were named already.
        first = gone.last - messages + 1
        times = [
            f"{word} {moment_of(time_ns):%Y-%m-%d %H:%M:%S} UTC"
            for word, time_ns in (("after", after), ("before", before))
            if time_ns
        ]
        stored = f"; they were stored {' and '.join(times)}" if times else ""
        log.error(
            f"missed messages {first} to {gone.last} of stream {self._stream}: they were deleted "
            f"before they were read{stored}",
            extra={"stream": self._stream, "first": first, "last": gone.last, "missed": messages},
        )
