"""The connection says of each request what became of it, and comes back whatever happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import (
    ConnectFailed,
    Connection,
    NatsOptions,
    NoResponders,
    NotSent,
    OutcomeUnknown,
    TooLarge,
)
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage, Session
from logpipeline_operator.secret_files import written
from waiting import eventually


@asynccontextmanager
async def connected(url: str, **options: object) -> AsyncIterator[Connection]:
    """Connect, and close in the end."""
    connection = Connection(NatsOptions(servers=(url,), **options))  # type: ignore[arg-type]
    await connection.start(patience_s=10)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_request_without_a_listener_was_certainly_not_carried_out(
    nats_server: EmbeddedServer,
) -> None:
    """The server itself says so."""
    async with connected(nats_server.url) as connection:
        with pytest.raises(NoResponders):
            await connection.request("nobody.there")


async def test_a_message_above_the_limit_is_refused_before_it_ends_the_connection(
    nats_server: EmbeddedServer,
) -> None:
    """nats-py closes for ever when headers and payload together are too large."""
    async with connected(nats_server.url) as connection:
        limit = connection.max_payload_bytes
        with pytest.raises(TooLarge):
            await connection.publish("x", bytes(limit), headers={"a": "b"})
        await connection.publish("x", bytes(limit))
        with pytest.raises(NoResponders):
            await connection.request("still.connected")
        assert connection.sessions == 1


async def test_a_message_just_at_the_limit_with_headers_passes(nats_server: EmbeddedServer) -> None:
    """Our sum is the server's sum, to the byte."""
    async with connected(nats_server.url) as connection:
        headers = {"Name": "value", "Other-Name": "x" * 300}
        size = len(b"NATS/1.0\r\n\r\n") + sum(len(k) + len(v) + 4 for k, v in headers.items())
        arrived = asyncio.get_running_loop().create_future()
        await connection.listen("at.the.limit", arrived.set_result)
        payload = bytes(connection.max_payload_bytes - size)
        await connection.publish("at.the.limit", payload, headers=headers)

        async with asyncio.timeout(10):
            message: RawMessage = await arrived
        assert len(message.headers) == size
        with pytest.raises(TooLarge):
            await connection.publish("at.the.limit", payload + b"x", headers=headers)


async def test_an_answer_that_does_not_come_leaves_the_outcome_unknown(
    nats_server: EmbeddedServer,
) -> None:
    """The server stands still with the request in its buffers."""
    async with connected(nats_server.url) as connection:
        nats_server.suspend()
        await eventually(lambda: _is_stopped(nats_server.pid))
        try:
            with pytest.raises(OutcomeUnknown):
                await JetStream(connection).call("INFO", timeout_s=0.2)
        finally:
            nats_server.resume()


async def test_a_connection_that_breaks_while_sending_leaves_the_outcome_unknown(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes may be out. Made by hand: a socket does not break at a place of our choice."""
    send = Session.send

    async def send_and_break(self: Session, *message: Any) -> None:
        await send(self, *message)
        raise BrokenPipeError("broken pipe")

    async with connected(nats_server.url) as connection:
        monkeypatch.setattr(Session, "send", send_and_break)
        with pytest.raises(OutcomeUnknown):
            await connection.request("x", b"y")


async def test_a_killed_server_ends_waiting_requests_and_is_found_again(
    nats_server: EmbeddedServer,
) -> None:
    """Nobody waits for a time-out when the connection is gone, and subscriptions come back."""
    async with connected(nats_server.url) as connection:
        heard = asyncio.Event()
        await connection.listen("silent", lambda message: None)
        await connection.listen("again", lambda message: heard.set())
        waiting = asyncio.create_task(connection.request("silent", timeout_s=60))
        async with asyncio.timeout(5):
            await connection.publish("flush", b"")
        nats_server.kill()
        with pytest.raises((OutcomeUnknown, NotSent)):
            async with asyncio.timeout(10):
                await waiting
        with pytest.raises(NotSent):
            await connection.request("anything")
        await nats_server.start()
        async with asyncio.timeout(20):
            await connection.wait_connected()
        await connection.publish("again", b"")

        async with asyncio.timeout(10):
            await heard.wait()
        assert connection.sessions == 2


async def test_a_server_that_asks_for_credentials_is_explained(tmp_path: Path) -> None:
    """The message says what to do."""
    options = ServerOptions(user="logs", password="secret")
    async with EmbeddedServer(tmp_path / "nats", options) as server:
        with pytest.raises(ConnectFailed, match="asks for credentials"):
            async with connected(server.url):
                pass


async def test_credentials_come_from_files(tmp_path: Path) -> None:
    """Never from the command line, and read again at each connect."""
    (tmp_path / "user").write_text("logs\n")
    (tmp_path / "password").write_text("secret\n")
    options = ServerOptions(user="logs", password="secret")
    async with (
        EmbeddedServer(tmp_path / "nats", options) as server,
        connected(
            server.url, user_file=tmp_path / "user", password_file=tmp_path / "password"
        ) as connection,
    ):
        assert (await JetStream(connection).account())["streams"] == 0


async def test_a_denied_permission_is_a_problem_that_can_be_read(tmp_path: Path) -> None:
    """To the one who waits it only shows as a time-out."""
    async with EmbeddedServer(tmp_path / "nats") as server, connected(server.url) as connection:
        connection._denied("permissions violation for publish to x")
        assert connection.problem == "permissions violation for publish to x"


async def test_nobody_there_is_explained() -> None:
    """The address is named."""
    connection = Connection(NatsOptions(servers=("127.0.0.1:9",)))
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:9"):
        await connection.start(patience_s=0.5)


def _is_stopped(pid: int) -> bool:
    # The signal is on its way when `kill` returns; a thread may still answer until it is there.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_credentials_do_not_leave_in_the_clear_where_tls_is_asked_for(
    tmp_path: Path,
) -> None:
    """With tls:// a server that asks for no TLS is told nothing: the library would log in."""
    (tmp_path / "password").write_text("secret")
    (tmp_path / "user").write_text("me")
    options = ServerOptions(user="me", password="secret")
    async with EmbeddedServer(tmp_path / "nats", options) as server:
        url = server.url.rpartition("@")[2].removeprefix("nats://")
        connection = Connection(
            NatsOptions(
                servers=(f"tls://{url}",),
                user_file=tmp_path / "user",
                password_file=tmp_path / "password",
            )
        )
        with pytest.raises(ConnectFailed, match="the server offers no TLS"):
            await connection.start(patience_s=2)


async def test_a_lacking_package_is_named_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials of nkeys need a package; without it the message says so, and trying goes on."""
    monkeypatch.setitem(sys.modules, "nkeys", None)
    (tmp_path / "seed").write_text("SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4")
    async with EmbeddedServer(tmp_path / "nats") as server:
        connection = Connection(NatsOptions(servers=(server.url,), nkey_file=tmp_path / "seed"))
        with pytest.raises(ConnectFailed, match=r"pip install logpipeline\[nkeys\]"):
            await connection.start(patience_s=2)


async def test_a_login_that_is_there_only_at_each_connect_is_enough(tmp_path: Path) -> None:
    """Its files are gone once the connection stands, and there again when it is made anew."""
    files = {"user": b"me", "password": b"it is"}
    folder = tmp_path / "login"
    server_options = ServerOptions(user="me", password="it is")
    async with EmbeddedServer(tmp_path / "nats", server_options) as server:
        address = server.url.rpartition("@")[2].removeprefix("nats://")
        options = NatsOptions(
            servers=(f"nats://{address}",),
            user_file=folder / "user",
            password_file=folder / "password",
        )
        connection = Connection(options, lambda: written(files, folder))
        await connection.start(patience_s=10)
        try:
            is_there = folder.exists()
            server.kill()
            await eventually(lambda: not connection.is_connected)
            await server.start()
            await eventually(lambda: connection.is_connected)

            assert not is_there
            assert not folder.exists()
            assert connection.sessions == 2
        finally:
            await connection.close()


async def test_a_password_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    """A rotated Secret is a changed file: the next connect uses it, and nothing is restarted."""
    (tmp_path / "user").write_text("me")
    (tmp_path / "password").write_text("the old one")
    before = ServerOptions(user="me", password="the old one")
    async with EmbeddedServer(tmp_path / "nats", before) as server:
        address = server.url.rpartition("@")[2].removeprefix("nats://")
        connection = Connection(
            NatsOptions(
                servers=(f"nats://{address}",),
                user_file=tmp_path / "user",
                password_file=tmp_path / "password",
            )
        )
        await connection.start(patience_s=10)
    try:
        after = ServerOptions(
            user="me", password="the new one", port=int(address.rpartition(":")[2])
        )
        async with EmbeddedServer(tmp_path / "nats", after):
            await eventually(lambda: "credentials" in (connection.problem or ""))
            (tmp_path / "password").write_text("the new one")

            await eventually(lambda: connection.is_connected)
            with pytest.raises(NoResponders):
                await connection.request("answered.again")
    finally:
        await connection.close()
