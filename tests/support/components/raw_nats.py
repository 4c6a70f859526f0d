"""A client of NATS that sends whatever bytes it is told to, which libraries would not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

# A byte that stands in no text.
NO_TEXT = b"\xff"

# What the server itself says with them: a heartbeat, the end of a batch, nothing there, the end of
# a pull, no responders. It takes a status line away from what it stores, but not one without a line
# end; and cuts the last two bytes where it adds its own fields.
STATUS_LINES = (
    b"NATS/1.0 100 Idle Heartbeat",
    b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\n",
    b"NATS/1.0 204 EOB\nNats-Last-Sequence: 3",
    b"NATS/1.0 404 No Messages",
    b"NATS/1.0 408 Request Timeout",
    b"NATS/1.0 409 Consumer Deleted",
    b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
    b"NATS/1.0 503",
    b"NATS/1.0 503 \n\n",
    # As if the server's own fields came next.
    b"NATS/1.0 404 Not Found\r\nNats-Sequence: 1\r\nNats-Subject: x\r\n\r\n",
    b"NATS/1.0 409 x\nNats-Stream: x\nNats-Sequence: 1\nNats-Subject: x",
)

Message = tuple[bytes, bytes, bytes]


async def publish(url: str, *messages: Message, user: str = "", password: str = "") -> None:
    """Publish *messages*, each a subject, a block of headers and a payload, and return when the
    server has taken them.
    """
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    options = {"verbose": False, "headers": True, "protocol": 1, "user": user, "pass": password}
    writer.write(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
    for subject, headers, payload in messages:
        sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
        writer.write(b"HPUB " + subject + b" " + sizes + b"\r\n" + headers + payload + b"\r\n")
    writer.write(b"PING\r\n")
    await writer.drain()
    while (line := await reader.readline()) != b"PONG\r\n":
        assert line.startswith((b"INFO", b"PING")), line
    writer.close()
    await writer.wait_closed()


def no_text(subject: str, headers: Mapping[str, str], payload: bytes) -> list[Message]:
    """Return copies of a message, each with a byte that is no text in another place."""
    plain = {name.encode(): value.encode() for name, value in headers.items()}
    names = [*plain, b"Log-Pod", b"Log-Cluster", b"Log-Label-app", b"Other"]
    blocks = [block_of(plain | {name: plain.get(name, b"x") + NO_TEXT}) for name in names]
    blocks += [block_of(plain | {name: b"x"}) for name in (NO_TEXT, b"Log-Label-" + NO_TEXT)]
    host, dot, _ = subject.rpartition(".")
    return [
        *((subject.encode(), block, payload) for block in blocks),
        (host.encode() + dot.encode() + NO_TEXT, block_of(plain), payload),
    ]


def block_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Return headers as NATS has them."""
    lines = [name + b": " + value for name, value in fields.items()]
    return b"\r\n".join([b"NATS/1.0", *lines, b"", b""])
