"""One connection to one nats-server: nats-py's client with a parser that hands messages to plain
functions.

nats-py speaks the protocol, TLS and every kind of credentials. Its own reading path costs a
coroutine, a queue and a dictionary of headers for each message, its slow-consumer rule drops
messages silently, and its reconnect waits for a dead socket to flush. So a session lives exactly
as long as one connection, and `Connection` makes the next one. This is the only module that
touches nats-py's private parts. They are the same since 2.13, and tests cover each of them; with a
version that lacks one, no session is made. To read in the library's own way instead would drop
messages silently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import nats.aio.client
import nats.errors
from nats.aio.client import Client, __version__
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from logpipeline import json_text

log = logging.getLogger(__name__)

# nats-py reads 32 KiB at a time by default; a batch is larger. Measured: 15 % less CPU when
# reading.
nats.aio.client.DEFAULT_BUFFER_SIZE = 512 * 1024

# nats-server's default max_control_line is 4 KiB; an INFO line of a large cluster is longer.
CONTROL_LINE_BYTES_MAX = 256 * 1024

# nats-server allows 64 MiB as max_payload, and adds headers to a stored message.
MESSAGE_BYTES_MAX = 64 * 2**20 + 64 * 1024
# Such a message, of nats-server's default max_payload, is always taken; of larger ones the sessions
# of a process take so much at a time. An operator has a session for each pipeline, and a hostile
# server that announces large messages must not fill the memory that all pipelines share.
SMALL_MESSAGE_BYTES_MAX = 2**20 + 64 * 1024
LARGE_MESSAGES_BYTES_MAX = 2 * MESSAGE_BYTES_MAX

# What a session overrides, calls or sets.
PRIVATE_PARTS = (
    "_connect_command",
    "_flusher_task",
    "_ping_interval_task",
    "_process_err",
    "_process_info",
    "_process_op_err",
    "_process_ping",
    "_process_pong",
    "_ps",
    "_read_loop",
    "_reading_task",
    "_status",
    "_transport",
    "options",
)
# Without it a server that offers no TLS would not be noticed.
PRIVATE_PART_OF_TRANSPORT = "_io_writer"

# The server adds it to each stored message that it hands out by a direct get, and to no message of
# its own.
_STORED = b"\r\nNats-Sequence: "


class RawMessage(NamedTuple):
    """A message as it came; *headers* is the whole block with its first line, or empty."""

    subject: bytes
    reply: bytes
    headers: bytes
    data: bytes

    @property
    def status(self) -> int:
        """The status code of a message of the server itself (408, 409, 503, …), or 0. The status
        line of a stored message says nothing: its publisher wrote it.
        """
        if not self.headers.startswith(b"NATS/1.0 ") or _STORED in self.headers:
            return 0
        word = self.headers[8:13].strip().split(b"\r\n")[0][:3]
        return int(word) if word.isdigit() else 0

    @property
    def description(self) -> str:
        """The text behind the status code."""
        return self.headers[12:].split(b"\r\n")[0].strip().decode("utf-8", "replace")


Sink = Callable[[RawMessage], None]


class NoTls(nats.errors.Error):
    """A server that should be spoken to under TLS does not do that."""


class ProtocolError(nats.errors.Error):
    """The peer does not speak the protocol, or not within our limits; the message says how."""


class UnknownLibrary(ImportError):
    """The installed nats-py lacks a private part that a session needs."""


def check_library(client: object, transport: object) -> None:
    """Return if a *client* and a *transport* of nats-py have all parts that a session needs.

    Raises:
        UnknownLibrary: one is missing; the message says which, and what to install.
    """
    missing = [name for name in PRIVATE_PARTS if not hasattr(client, name)]
    if not hasattr(transport, PRIVATE_PART_OF_TRANSPORT):
        missing.append(PRIVATE_PART_OF_TRANSPORT)
    if missing:
        raise UnknownLibrary(
            f"nats-py {__version__} is not one that this version of logpipeline works with (it "
            f"lacks {', '.join(missing)}): pip install 'nats-py >=2.13,<=2.16'",
            name="nats",
        )


class Session(Client):
    """One connection. *on_lost* is called once when it breaks, *on_problem* for each permission
    that is denied.
    """

    def __init__(
        self, on_lost: Callable[[Exception], None], on_problem: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._on_lost = on_lost
        self._on_problem = on_problem
        self._was_lost = False
        self._sinks: dict[int, Sink] = {}
        self._ps: Any = SinkParser(self)

    async def listen(self, subject: str, sink: Sink, queue: str = "") -> Subscription:
        """Subscribe to *subject*; *sink* is called in the event loop for each message, and must
        not block.
        """
        subscription = await self.subscribe(subject, queue=queue)
        self._sinks[subscription._id] = sink
        return subscription

    async def unlisten(self, subscription: Subscription) -> None:
        """Undo `listen`."""
        self._sinks.pop(subscription._id, None)
        await subscription.unsubscribe()

    async def drain_listening(self, subscription: Subscription, timeout_s: int) -> None:
        """Undo `listen`, once all has come that the server sent before."""
        try:
            await subscription.unsubscribe()
            # Its answer comes behind the last message.
            await self.flush(timeout_s)
        finally:
            self._sinks.pop(subscription._id, None)

    async def send(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, reply: str
    ) -> None:
        """Publish; *payload* with its headers must be below the server's limit (`Connection`
        checks).
        """
        await self.publish(subject, payload, reply=reply, headers=headers)

    def deliver(self, sid: int, message: RawMessage) -> None:
        """Hand *message* to the sink of its subscription, if that still stands."""
        if sink := self._sinks.get(sid):
            try:
                sink(message)
            except Exception:
                # It would end the task that reads, and the connection would stay open and deaf, for
                # all other sinks as well. Who counts deliveries sees that one is missing.
                log.exception(
                    "a message was not taken, by a mistake in logpipeline: please report it",
                    extra={"subject": message.subject.decode("utf-8", "replace")},
                )

    def lose(self, error: Exception) -> None:
        """Give the connection up: end its tasks and cut the socket without waiting for it to
        flush.
        """
        if self._was_lost:
            return
        self._was_lost = True
        self._status = Client.CLOSED
        for task in (self._ping_interval_task, self._flusher_task, self._reading_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._abort_socket()
        self._on_lost(error)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # Each connection begins with the servers that were configured. The library would collect
        # what is named here, without a limit, and go to such a server with our credentials.
        info.pop("connect_urls", None)
        # The library begins TLS only where the server insists; one that also takes plain clients
        # says that it has it, and the options demand it.
        if self.options.get("tls") is not None and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection=initial_connection)

    def _connect_command(self) -> bytes:
        # The last moment before user and password go out. The library believes a server that asks
        # for no TLS, whatever the options demand.
        writer = getattr(self._transport, "_io_writer", None)
        is_plain = writer is not None and writer.get_extra_info("ssl_object") is None
        if self.options.get("tls") is not None and is_plain:
            raise NoTls(
                "the server offers no TLS, and TLS is asked for (tls:// or a certificate); nothing "
                "was sent to it"
            )
        command: bytes = super()._connect_command()
        return command

    def _abort_socket(self) -> None:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _process_op_err(self, e: Exception) -> None:
        self.lose(e)

    async def _process_err(self, err_msg: str) -> None:
        # In its own letters: it names a subject.
        if "permissions violation" in err_msg.lower():
            self._on_problem(err_msg.strip("'"))
        else:
            self.lose(ConnectionError(err_msg.strip("'")))

    async def _read_loop(self) -> None:
        try:
            while data := await self._read():
                await self._ps.parse(data)
            self.lose(ConnectionError("the server closed the connection"))
        except Exception as error:  # noqa: BLE001  # it becomes the reason of the loss
            # Whatever it is: a connection that is not read must not stay open.
            self.lose(error)
        finally:
            self._ps.reset()

    async def _read(self) -> bytes:
        assert self._transport is not None
        return bytes(await self._transport.read(nats.aio.client.DEFAULT_BUFFER_SIZE))


class SinkParser:
    """Takes the protocol apart in one pass over a buffer; nats-py's tries eight regular
    expressions for each message.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.reset()

    def reset(self) -> None:
        """Forget what was not yet taken apart."""
        self._buffer = bytearray()
        self._message: tuple[int, bytes, bytes, int, int] | None = None
        _large.pop(self, None)

    async def parse(self, data: bytes = b"") -> None:
        """Take *data* apart, and deliver each message that is complete.

        Raises:
            ProtocolError: the peer does not speak the protocol.
        """
        buffer = self._buffer
        buffer += data
        position = 0
        try:
            while True:
                if self._message is None:
                    end = buffer.find(b"\r\n", position)
                    if end < 0:
                        if len(buffer) - position > CONTROL_LINE_BYTES_MAX:
                            raise ProtocolError("control line too long")
                        break
                    line = bytes(buffer[position:end])
                    position = end + 2
                    if line.startswith((b"HMSG ", b"MSG ")):
                        self._message = _message_of(line)
                        if self._message[-1] > SMALL_MESSAGE_BYTES_MAX:
                            self._begin_large(self._message[-1])
                    else:
                        await self._control(line)
                    continue
                sid, subject, reply, head, size = self._message
                if len(buffer) - position < size + 2:
                    break
                self._message = None
                body = position + head
                message = RawMessage(
                    subject,
                    reply,
                    bytes(buffer[position:body]),
                    bytes(buffer[body : position + size]),
                )
                position += size + 2
                if size > SMALL_MESSAGE_BYTES_MAX:
                    _large.pop(self, None)
                self._session.deliver(sid, message)
        finally:
            del buffer[:position]

    def _begin_large(self, size: int) -> None:
        # It is held until it is whole. One that never ends holds back PONG, too: the session is
        # lost after PINGS_OUTSTANDING_MAX.
        if sum(_large.values()) + size > LARGE_MESSAGES_BYTES_MAX:
            raise ProtocolError(f"no room for a message of {size} bytes beside other large ones")
        _large[self] = size

    async def _control(self, line: bytes) -> None:
        if line.startswith(b"PING"):
            await self._session._process_ping()
        elif line.startswith(b"PONG"):
            await self._session._process_pong()
        elif line.startswith(b"INFO "):
            await self._session._process_info(_info_of(line[5:]))
        elif line.startswith(b"-ERR"):
            await self._session._process_err(line[4:].strip().decode("utf-8", "replace"))
        elif not line.startswith(b"+OK"):
            raise ProtocolError(f"unknown operation {line[:20]!r}")


# The sizes of the large messages of which a part has arrived.
_large: WeakKeyDictionary[SinkParser, int] = WeakKeyDictionary()


def _info_of(text: bytes) -> dict[str, Any]:
    try:
        info = json_text.parse(text)
    except ValueError as error:
        raise ProtocolError(f"malformed INFO line {text[:80]!r}: {error}") from error
    if not isinstance(info, dict):
        raise ProtocolError(f"malformed INFO line {text[:80]!r}: no object")
    return info


def _message_of(line: bytes) -> tuple[int, bytes, bytes, int, int]:
    words = line.split()
    counts = 2 if words[0] == b"HMSG" else 1
    try:
        reply = words[3] if len(words) == 4 + counts else b""
        head = int(words[-2]) if counts == 2 else 0
        sid, size = int(words[2]), int(words[-1])
    except (ValueError, IndexError) as error:
        raise ProtocolError(f"malformed message line {line[:80]!r}") from error
    # A negative size would have the same line taken again for ever.
    if not 0 <= head <= size <= MESSAGE_BYTES_MAX:
        raise ProtocolError(f"impossible size in the message line {line[:80]!r}")
    return sid, words[1], reply, head, size


# At the import: a process that could not connect is not to begin.
check_library(Client(), cast("Any", TcpTransport)())
