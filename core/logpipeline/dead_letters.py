"""Dead letters: messages that could not be used, kept with the reason in a stream of their own.
Collectors and readers write them; commands show them and send them again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, replace

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.nats.connection import NotSent, OutcomeUnknown, TooLarge, headers_size
from logpipeline.nats.jetstream import (
    STILL_IN_PROCESS,
    STREAM_STORE_FAILED,
    UNAVAILABLE,
    WRONG_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE_CONSTANT,
    ApiError,
    JetStream,
    StoredMessage,
    time_ns_of,
)
from logpipeline.nats.replicas import certain_message
from logpipeline.subjects import dead_letter_subject
from logpipeline.wire import whole_number

log = logging.getLogger(__name__)

# A whole batch of the default size, so that it can be sent again when its stream has let it go; of
# a larger one the beginning.
PAYLOAD_BYTES_MAX = 256 * 1024
HEADERS_BYTES_MAX = 16 * 1024
SUBJECT_BYTES_MAX = 512
DETAIL_CHARACTERS_MAX = 500
# Longer than a leader's election; then the pipeline goes on without the letter.
DEADLINE_S = 10.0
RETRY_S = 0.2
# On a message that is sent again: the consumer that had given it up. Other readers may pass it by.
RETRY_FOR = "Dead-Retry-For"
# And the number of its letter: if it becomes one once more, it takes the place of the former one.
RETRY_OF = "Dead-Retry-Of"

GAVE_UP = "max-deliver"
TERMINATED = "terminated"

_TYPES = {
    "io.nats.jetstream.advisory.v1.max_deliver": GAVE_UP,
    "io.nats.jetstream.advisory.v1.terminated": TERMINATED,
}


# A letter has its own subject: the same message, given up twice by the same reader, is one letter,
# however long lies between.
class NoLetter(ValueError):
    """A message of the dead-letter stream that is not a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """The message at *sequence* of *stream*, and why it is here.

    *reason* is one token. *created* is the stream's own, *time_ns* the server's time of the
    message, in nanoseconds since 1970. *subject*, *headers* and *payload* are the message's, as
    far as they were kept; *payload_bytes* is how long the payload was. *consumer* gave the
    message up; it is empty where a collector could not collect it. *is_gone* means that the
    stream had let the message go before it could be copied.
    """

    reason: str
    detail: str
    stream: str
    created: str
    sequence: int
    time_ns: int
    subject: str = ""
    headers: bytes = b""
    payload: bytes = b""
    payload_bytes: int = 0
    consumer: str = ""
    is_gone: bool = False

    @property
    def identifier(self) -> str:
        """The ``Nats-Msg-Id``: one message makes one letter for each consumer that gave it up."""
        name = f"{self.stream}.{self.created}.{self.sequence}.{self.time_ns}"
        return f"{name}.{self.consumer}" if self.consumer else name

    @property
    def is_whole(self) -> bool:
        """Whether the letter alone is enough to send its message again."""
        is_cut = len(self.payload) < self.payload_bytes or len(self.headers) >= HEADERS_BYTES_MAX
        return not self.is_gone and not is_cut and len(self.subject) < SUBJECT_BYTES_MAX

    @property
    def comes_back(self) -> bool:
        """Whether the message was sent again, and was a letter before."""
        return f"\r\n{RETRY_OF}:".encode() in self.headers

    def subject_in(self, root: str, partition: int) -> str:
        """Return the letter's own subject below *root*."""
        return self._subject(root, partition, str(self.time_ns))

    def subject_at_any_time(self, root: str, partition: int) -> str:
        """Return the filter of this letter, whatever time its message had."""
        return self._subject(root, partition, "*")

    def _subject(self, root: str, partition: int, time: str) -> str:
        key = (str(self.sequence), time, *((self.consumer,) if self.consumer else ()))
        return dead_letter_subject(root, partition, self.reason, *key)


def encode(letter: Letter) -> dict[str, str]:
    """Return the headers of *letter*; its payload travels as it is."""
    headers = {
        "Nats-Msg-Id": letter.identifier,
        "Dead-Reason": letter.reason,
        "Dead-Detail": printable(letter.detail)[:DETAIL_CHARACTERS_MAX],
        "Dead-Stream": letter.stream,
        "Dead-Created": letter.created,
        "Dead-Sequence": str(letter.sequence),
        "Dead-Time-Ns": str(letter.time_ns),
        # JSON gives every byte back; text of a stranger must not end a header.
        "Dead-Subject": _quoted(letter.subject[:SUBJECT_BYTES_MAX]),
        "Dead-Headers": _quoted(_text(letter.headers[:HEADERS_BYTES_MAX])),
        "Dead-Bytes": str(letter.payload_bytes),
    }
    if letter.consumer:
        headers["Dead-Consumer"] = letter.consumer
    if letter.is_gone:
        headers["Dead-Gone"] = "1"
    return headers


def decode(headers: bytes, payload: bytes) -> Letter:
    """Return the letter that a message of the dead-letter stream is.

    Raises:
        NoLetter: it is none.
    """
    fields: dict[str, str] = {}
    for line in headers.decode("utf-8", "replace").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        fields.setdefault(name, value.strip())
    try:
        letter = Letter(
            reason=fields["Dead-Reason"],
            detail=fields["Dead-Detail"],
            stream=fields["Dead-Stream"],
            created=fields.get("Dead-Created", ""),
            sequence=_number(fields["Dead-Sequence"]),
            time_ns=_number(fields["Dead-Time-Ns"]),
            subject=json_text.parse(fields["Dead-Subject"]),
            headers=json_text.parse(fields["Dead-Headers"]).encode("utf-8", "surrogateescape"),
            payload=payload,
            payload_bytes=_number(fields["Dead-Bytes"]),
            consumer=fields.get("Dead-Consumer", ""),
            is_gone="Dead-Gone" in fields,
        )
        return checked(letter)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise NoLetter(f"no dead letter: {error!r}") from error


def _number(text: str) -> int:
    if (number := whole_number(text)) is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return number


async def keep(js: JetStream, root: str, partition: int, letter: Letter) -> bool:
    """Store *letter* below *root*, and return whether it stands there, now or already.

    It returns at the latest after `DEADLINE_S`; what was not stored is logged.
    """
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _until_stored(js, letter.subject_in(root, partition), letter)
    except TimeoutError:
        log.warning("dead letter not kept: no answer", extra=_position_of(letter))
        return False


async def _until_stored(js: JetStream, subject: str, letter: Letter) -> bool:
    headers = encode(letter) | {"Nats-Expected-Last-Subject-Sequence": "0"}
    while True:
        room = max(js.connection.max_payload_bytes - headers_size(headers), 0)
        payload = letter.payload[: min(PAYLOAD_BYTES_MAX, room)]
        try:
            await js.publish(subject, payload, headers)
        except (TooLarge, ApiError) as error:
            if isinstance(error, ApiError) and error.err_code in _IS_THERE:
                return True
            if not isinstance(error, ApiError) or not _is_passing(error):
                extra = _position_of(letter) | {"reason": str(error)}
                log.warning("dead letter not kept: refused", extra=extra)
                return False
        except (NotSent, OutcomeUnknown) as error:
            log.debug("dead letter not sent yet", extra={"reason": str(error)})
        else:
            return True
        await asyncio.sleep(RETRY_S)


_IS_THERE = (WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT)


def _is_passing(error: ApiError) -> bool:
    # A stream that is full says so with the code of one that has no leader.
    is_full = error.err_code == STREAM_STORE_FAILED
    return (error.code == UNAVAILABLE and not is_full) or error.err_code == STILL_IN_PROCESS


def printable(text: str) -> str:
    """Return *text* with all escaped that could end a header or steer a terminal."""
    return "".join(
        character if character.isascii() and character.isprintable() else ascii(character)[1:-1]
        for character in text
    )


def _position_of(letter: Letter) -> dict[str, object]:
    return {"stream": letter.stream, "sequence": letter.sequence}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    # JSON does not escape a DEL.
    return json.dumps(text).replace("\x7f", "\\u007f")


class NoAdvisory(ValueError):
    """A message that is not the server's report of one that was given up."""


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
        """The reason as a sentence."""
        times = "once" if self.deliveries == 1 else f"{self.deliveries} times"
        text = f"consumer {self.consumer}: delivered {times}"
        if self.reason == TERMINATED:
            text += ", then terminated"
        return f"{text}: {self.said}" if self.said else text


def parse(payload: bytes) -> Advisory:
    """Return the server's report.

    Raises:
        NoAdvisory: it is something else.
    """
    try:
        fields = json_text.parse(payload)
        return Advisory(
            reason=_TYPES[fields["type"]],
            stream=str(fields["stream"]),
            consumer=str(fields["consumer"]),
            sequence=int(fields["stream_seq"]),
            deliveries=int(fields["deliveries"]),
            time_ns=time_ns_of(fields["timestamp"]),
            said=str(fields.get("reason", "")),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise NoAdvisory(f"no advisory: {error!r}") from error


async def letter_of(js: JetStream, advisory: Advisory, *, created: str) -> Letter:
    """Return the letter that *advisory* makes, with the message as its stream, *created* then, has
    it now. A message that is gone has the advisory's time.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the stream cannot be asked.
    """
    message = await certain_message(js, advisory.stream, advisory.sequence)
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
