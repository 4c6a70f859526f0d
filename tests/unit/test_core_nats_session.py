"""One connection: what its readers do wrong, and what a server does, never leaves it deaf."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from logpipeline.nats.session import (
    MESSAGE_BYTES_MAX,
    PRIVATE_PARTS,
    SMALL_MESSAGE_BYTES_MAX,
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
        ([b"MSG a\r\n"], None),
        # By this one the parser would stand still: its size takes it back to its own line.
        ([b"MSG a 1 -15\r\n"], None),
        ([b"HMSG a 1 -1 4\r\n"], None),
        ([b"HMSG a 1 9 4\r\n"], None),
        ([b"MSG a 1 %d\r\n" % (MESSAGE_BYTES_MAX + 1)], None),
        ([b"MSG a 1 " + b"9" * 5000 + b"\r\n"], None),
        ([b"HELLO\r\n"], None),
    ],
    ids=[
        *("mistake", "reset", "half-an-info", "list", "message"),
        *("negative", "negative-head", "head-beyond", "large", "endless", "word"),
    ],
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


async def test_large_messages_of_many_servers_do_not_fill_the_memory() -> None:
    """A process takes so much of them at a time; a session that wants more is given up, and what it
    had is free again. Small messages are always taken.
    """
    lost: list[Exception] = []
    taken: list[bytes] = []
    sessions: list[Any] = [made(lost) for _ in range(4)]
    *holding, one_more, small = [session._ps for session in sessions]
    for parser in holding:
        await parser.parse(b"MSG a 1 %d\r\npart" % MESSAGE_BYTES_MAX)
    sessions[3]._sinks = {1: lambda found: taken.append(found.data)}
    await small.parse(message(1, b"small"))
    for _ in range(2):
        sessions[2]._transport = Incoming([b"MSG a 1 %d\r\n" % (2 * 2**20)])
        sessions[2]._was_lost = False
        await sessions[2]._read_loop()
        holding[0].reset()

    assert taken == [b"small"]
    assert "no room for a message of 2097152 bytes" in str(lost[0])
    assert str(lost[1]) == "the server closed the connection"
    assert one_more._buffer == b""
    assert SMALL_MESSAGE_BYTES_MAX < 2 * 2**20


async def test_a_large_message_is_delivered_and_leaves_room_for_the_next() -> None:
    """Also of the largest size, which comes in many parts."""
    taken: list[int] = []
    session: Any = made([])
    session._sinks = {1: lambda found: taken.append(len(found.data))}
    for _ in range(3):
        await session._ps.parse(message(1, bytes(MESSAGE_BYTES_MAX)))

    assert taken == [MESSAGE_BYTES_MAX] * 3


async def test_servers_that_a_server_names_are_not_kept() -> None:
    """Each message of this kind would make the list longer, and we would log in there."""
    session: Any = made([])
    session._current_server = SimpleNamespace(uri=urlsplit("nats://a:4222"))
    await session._ps.parse(b'INFO {"connect_urls":["b:4222"]}\r\n')

    assert session._server_pool == []


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
