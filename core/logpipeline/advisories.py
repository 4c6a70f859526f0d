"""What the server says when a consumer's readers get a message no more: delivered too often, or
terminated by one of them. It becomes a dead letter with the message that it names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from logpipeline.deadletters import Letter
from logpipeline.nats.jetstream import JetStream, StoredMessage, time_ns_of

GAVE_UP = "max-deliver"
TERMINATED = "terminated"
REASONS = (GAVE_UP, TERMINATED)

_TYPES = {
    "io.nats.jetstream.advisory.v1.max_deliver": GAVE_UP,
    "io.nats.jetstream.advisory.v1.terminated": TERMINATED,
}


class NoAdvisory(ValueError):
    """Something else than a server's word on a message that was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisory:
    """The message at *sequence* of *stream*, given up for *consumer* at *time_ns*, in nanoseconds
    since 1970.
    """

    reason: str
    stream: str
    consumer: str
    sequence: int
    deliveries: int
    time_ns: int
    said: str = ""

    @property
    def detail(self) -> str:
        """What to tell people."""
        times = "once" if self.deliveries == 1 else f"{self.deliveries} times"
        text = f"consumer {self.consumer}: delivered {times}"
        if self.reason == TERMINATED:
            text += ", then terminated"
        return f"{text}: {self.said}" if self.said else text


def parse(payload: bytes) -> Advisory:
    """Return what the server said.

    Raises:
        NoAdvisory: it is something else.
    """
    try:
        told = json.loads(payload)
        return Advisory(
            reason=_TYPES[told["type"]],
            stream=str(told["stream"]),
            consumer=str(told["consumer"]),
            sequence=int(told["stream_seq"]),
            deliveries=int(told["deliveries"]),
            time_ns=time_ns_of(told["timestamp"]),
            said=str(told.get("reason", "")),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise NoAdvisory(f"no advisory: {error!r}") from error


async def letter_of(js: JetStream, advisory: Advisory, *, created: str) -> Letter:
    """Return the letter that *advisory* makes, with the message as its stream, *created* then, has
    it now. A message that is gone has the advisory's time.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the stream cannot be asked.
    """
    message = await js.message(advisory.stream, advisory.sequence)
    if message is None or message.time_ns > advisory.time_ns:
        # Where the stream lost its end, another message may have this number by now.
        return Letter(
            reason=advisory.reason,
            detail=f"{advisory.detail}; the stream had let the message go",
            stream=advisory.stream,
            created=created,
            sequence=advisory.sequence,
            time_ns=advisory.time_ns,
            consumer=advisory.consumer,
            is_gone=True,
        )
    named = Letter(
        reason=advisory.reason,
        detail=advisory.detail,
        stream=advisory.stream,
        created=created,
        sequence=advisory.sequence,
        time_ns=message.time_ns,
        consumer=advisory.consumer,
    )
    return with_message(named, message)


def with_message(letter: Letter, message: StoredMessage) -> Letter:
    """Return *letter* with the *message* that it is about, as its stream has it."""
    return replace(
        letter,
        subject=message.subject,
        headers=_without_server_fields(message.headers),
        payload=message.data,
        payload_bytes=len(message.data),
    )


# What a direct get adds to a stored message's headers.
_SERVER_FIELDS = (b"nats-stream:", b"nats-subject:", b"nats-sequence:", b"nats-time-stamp:")


def _without_server_fields(headers: bytes) -> bytes:
    first, *lines = headers.split(b"\r\n")
    kept = [line for line in lines if line and not line.lower().startswith(_SERVER_FIELDS)]
    return b"\r\n".join([first, *kept, b"", b""]) if kept else b""
