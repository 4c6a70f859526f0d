"""One connection: what its readers do wrong, and what a server does, never leaves it deaf."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from logpipeline.nats.session import (
    PRIVATE_PARTS,
    RawMessage,
    Session,
    UnknownLibrary,
    check_library,
)


def made(lost: list[Exception]) -> Session:
    """A session without a server; errors by which it is given up go to *lost*."""
    return Session(lost.append, lambda _: None)


def message(sid: int, text: bytes) -> bytes:
    """A message as the server sends it to the subscription *sid*."""
    return b"MSG a.b %d %d\r\n%s\r\n" % (sid, len(text), text)


class Incoming:
    """A transport from which *parts* are read, then *error* is raised or the end is reached."""

    def __init__(self, parts: list[bytes], error: Exception | None = None) -> None:
        self._parts = parts
        self._error = error

    async def read(self, _: int) -> bytes:
        if not self._parts and self._error is not None:
            raise self._error
        return self._parts.pop(0) if self._parts else b""


async def test_a_sink_that_fails_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its mistake is logged, and the next messages are delivered, to it as well."""
    lost: list[Exception] = []
    session: Any = made(lost)
    taken: list[bytes] = []

    def takes_few(found: RawMessage) -> None:
        if found.data == b"bad":
            raise KeyError(found.data)
        taken.append(found.data)

    session._sinks = {1: takes_few, 2: lambda found: taken.append(found.data)}
    session._transport = Incoming([message(1, b"bad") + message(2, b"x"), message(1, b"y")])
    with caplog.at_level(logging.ERROR):
        await session._read_loop()

    assert taken == [b"x", b"y"]
    assert [str(error) for error in lost] == ["the server closed the connection"]
    assert [record.message[:25] for record in caplog.records] == ["a message was not taken, "]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([], RuntimeError("a mistake")),
        ([], ConnectionResetError("gone")),
        ([b"INFO {\r\n"], None),
        ([b"INFO []\r\n"], None),
        ([b'INFO {"connect_urls":5}\r\n'], None),
        ([b"MSG a\r\n"], None),
        ([b"HELLO\r\n"], None),
    ],
    ids=["mistake", "reset", "half-an-info", "list", "other-types", "message", "word"],
)
async def test_a_connection_that_cannot_be_read_is_given_up(
    parts: list[bytes], error: Exception | None
) -> None:
    """At once, so that another one is made: it does not stay open and deaf."""
    lost: list[Exception] = []
    session: Any = made(lost)
    session._transport = Incoming(parts, error)
    await session._read_loop()

    [why] = lost
    assert str(why) != "the server closed the connection"


@pytest.mark.parametrize("missing", PRIVATE_PARTS)
def test_a_library_without_a_part_that_is_overridden_is_refused(missing: str) -> None:
    """A part that was renamed would not be overridden any more, and nothing would say so."""
    client = SimpleNamespace(**dict.fromkeys({*PRIVATE_PARTS} - {missing}))

    with pytest.raises(UnknownLibrary, match=rf"lacks {missing}\): pip install"):
        check_library(client, cast("Any", TcpTransport)())


def test_a_library_that_hides_whether_there_is_tls_is_refused() -> None:
    """A password would go out in plain text."""
    with pytest.raises(UnknownLibrary, match="lacks _io_writer"):
        check_library(Client(), object())
