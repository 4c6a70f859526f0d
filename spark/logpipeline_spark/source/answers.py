"""Takes a stored message out of the server's answer."""

from __future__ import annotations

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.nats.session import RawMessage
from logpipeline_spark.lines.message import Message

_TAIL = b"\r\nNats-Stream: "


def message_of(raw: RawMessage) -> Message:
    """Return the stored message of an answer: the server's own fields stand last in its headers,
    whatever the publisher wrote before them.
    """
    at = raw.headers.rfind(_TAIL)
    fields = raw.headers[at + 2 :].split(b"\r\n")
    # A subject is any bytes but spaces.
    subject, sequence, time = (
        field.split(b": ", 1)[1].decode("utf-8", "surrogateescape") for field in fields[1:4]
    )
    own = raw.headers[:at] + b"\r\n\r\n" if at > len(b"NATS/1.0") else b""
    return Message(int(sequence), time_ns_of(time), subject, own, raw.data)
