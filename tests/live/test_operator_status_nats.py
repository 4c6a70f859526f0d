"""A real server's own words for what is wrong come to the right reasons."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from logpipeline.nats.connection import (
    ConnectFailed,
    Connection,
    Denied,
    NatsOptions,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.observe import JetStreamOff, account_of
from logpipeline.server_binary import find_binary
from logpipeline_operator.status import Reason
from logpipeline_operator.status.errors import of_nats
from ports import free_port
from waiting import eventually

# Enough for a refusal, which comes at once.
PATIENCE_S = 1.0
PASSWORD = "s3cr3t-of-bob"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and how bob connects to it."""

    options: NatsOptions


@asynccontextmanager
async def server(folder: Path, *lines: str) -> AsyncIterator[Server]:
    """Run a server that is configured by *lines*."""
    port = free_port()
    (folder / "user").write_text("bob")
    (folder / "password").write_text(PASSWORD)
    config = folder / "server.conf"
    config.write_text("\n".join([f'listen: "127.0.0.1:{port}"', *lines]))
    log = folder / "server.log"
    process = subprocess.Popen([find_binary(), "--config", config, "--log", log])
    try:
        await eventually(
            lambda: log.exists() and "Server is ready" in log.read_text(),
            what=f"a server that is ready; see {log}",
        )
        yield Server(
            NatsOptions(
                servers=(f"nats://127.0.0.1:{port}",),
                user_file=folder / "user",
                password_file=folder / "password",
            )
        )
    finally:
        process.kill()
        process.wait()


async def reason(options: NatsOptions) -> Reason:
    """Why JetStream cannot be used with *options*."""
    connection = Connection(options)
    try:
        await connection.start(patience_s=PATIENCE_S)
        await account_of(JetStream(connection))
    except (ConnectFailed, JetStreamOff, OutcomeUnknown) as error:
        found = of_nats(error, denied=connection.problem or "")
        assert PASSWORD not in found.message
        return found.reason
    finally:
        await connection.close()
    raise AssertionError("nothing was wrong")


def storage(folder: Path) -> str:
    """The line that switches JetStream on."""
    return f'jetstream {{ store_dir: "{folder / "store"}" }}'


async def test_nobody_there(tmp_path: Path) -> None:
    """Where nothing listens, the address or the server is wrong."""
    options = NatsOptions(servers=(f"nats://127.0.0.1:{free_port()}",))

    assert await reason(options) is Reason.NATS_UNREACHABLE


async def test_a_wrong_password(tmp_path: Path) -> None:
    """Refused credentials are told as such, and are not shown."""
    users = f"authorization {{ users: [ {{ user: bob, password: {PASSWORD} }} ] }}"
    async with server(tmp_path, storage(tmp_path), users) as running:
        (tmp_path / "password").write_text(f"not-{PASSWORD}")

        assert await reason(running.options) is Reason.NATS_CREDENTIALS_REFUSED


async def test_tls_where_the_server_has_none(tmp_path: Path) -> None:
    """A failing handshake is told as such, though the port is open."""
    async with server(tmp_path, storage(tmp_path)) as running:
        url = running.options.servers[0].replace("nats://", "tls://")

        assert (
            await reason(replace(running.options, servers=(url,), tls_first=True))
            is Reason.NATS_TLS_FAILED
        )


@pytest.mark.parametrize(
    "lines",
    [(), (f"accounts {{ A {{ users: [ {{ user: bob, password: {PASSWORD} }} ] }} }}",)],
)
async def test_no_jetstream(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """Neither a server without JetStream nor an account without it is taken for silence."""
    on = [storage(tmp_path)] if lines else []
    async with server(tmp_path, *on, *lines) as running:
        assert await reason(running.options) is Reason.JETSTREAM_DISABLED


async def test_a_permission_that_is_denied(tmp_path: Path) -> None:
    """The server answers nothing to what is forbidden; what it says aside ends the call."""
    may = 'permissions: { publish: ["x"], subscribe: ["_INBOX.>"] }'
    users = f"authorization {{ users: [ {{ user: bob, password: {PASSWORD}, {may} }} ] }}"
    async with server(tmp_path, storage(tmp_path), users) as running:
        connection = Connection(running.options)
        await connection.start(patience_s=PATIENCE_S)
        with pytest.raises(Denied) as denied:
            await JetStream(connection).call("INFO")
        await connection.close()
    found = of_nats(denied.value)

    assert found.reason is Reason.NATS_PERMISSION_DENIED
    assert "$JS.API.INFO" in found.message
