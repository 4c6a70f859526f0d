"""The embedded server is found again, never shared by accident, and says what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.request import urlopen

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from logpipeline.embedded import EmbeddedServer, ServerFailed, ServerOptions
from waiting import eventually


async def test_a_killed_server_comes_back_at_the_same_address_with_its_messages(
    nats_server: EmbeddedServer,
) -> None:
    """What was acknowledged before a kill is there after it, at the same address."""
    url = nats_server.url
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", b"here")
    await client.close()

    nats_server.kill()
    await nats_server.start()

    assert nats_server.url == url
    client = await nats.connect(url)
    assert (await client.jetstream().get_msg("KEPT", 1)).data == b"here"
    await client.close()


def _accounts(**passwords: str) -> dict[str, Any]:
    users = [{"user": user, "password": password} for user, password in passwords.items()]
    return {"MINE": {"jetstream": "enabled", "users": users}}


async def test_a_server_that_gets_accounts_keeps_its_streams(tmp_path: Path) -> None:
    """What it stored before it had any is the streams' account's, and stays so."""
    async with EmbeddedServer(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", b"here")
        await client.close()
    options = ServerOptions(accounts=_accounts(me="secret"), streams_account="MINE")
    for _ in range(2):
        async with EmbeddedServer(tmp_path, options) as server:
            client = await nats.connect(server.url, user="me", password="secret")
            assert (await client.jetstream().get_msg("KEPT", 1)).data == b"here"
            await client.close()


async def test_users_change_while_a_server_runs(tmp_path: Path) -> None:
    """Who is new gets in, who is gone is shut out, and who stays notices nothing."""
    options = ServerOptions(accounts=_accounts(stays="one", goes="two"), streams_account="MINE")
    async with EmbeddedServer(tmp_path, options) as server:
        gone = asyncio.Event()

        async def closed() -> None:
            gone.set()

        goes = {"user": "goes", "password": "two", "allow_reconnect": False}
        await nats.connect(server.url, closed_cb=closed, **goes)
        stays = await nats.connect(server.url, user="stays", password="one", allow_reconnect=False)

        await server.change_accounts(_accounts(stays="one", comes="three"))

        comes = await nats.connect(server.url, user="comes", password="three")
        async with asyncio.timeout(10):
            await gone.wait()
        await stays.flush()
        server.kill()
        await server.start()
        again = await nats.connect(server.url, user="comes", password="three")
        for client in (stays, comes, again):
            await client.close()


async def test_an_acknowledged_message_is_synced_by_default(nats_server: EmbeddedServer) -> None:
    """A power cut takes nothing that was acknowledged, unless somebody chose otherwise."""
    config = _read(f"{nats_server.monitor_url}/jsz?config=true")["config"]

    assert config["sync_always"] is True


async def test_a_secret_stands_in_no_argument_and_in_no_file_of_others(tmp_path: Path) -> None:
    """Neither the list of processes nor another user shows the password; any character works."""
    password = """pa"ss\\w'#o$HOME {r} d"""
    options = ServerOptions(user="demo", password=password)

    async with EmbeddedServer(tmp_path, options) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        client = await nats.connect(server.url, user="demo", password=password)
        await client.close()
        assert await _is_refused(server)

    assert b"pa" + b'"ss' not in arguments
    assert (tmp_path / "server.conf").stat().st_mode & 0o077 == 0


async def test_a_token_is_asked_for(tmp_path: Path) -> None:
    """Only who knows the token gets in."""
    async with EmbeddedServer(tmp_path, ServerOptions(token="open sesame")) as server:
        client = await nats.connect(server.url, token="open sesame")
        await client.close()
        assert await _is_refused(server, token="guess")


async def test_limits_reach_the_server(tmp_path: Path) -> None:
    """The store and a message are bounded by what was asked for."""
    options = ServerOptions(max_payload_bytes=4096, max_file_store_bytes=10_000_000)

    async with EmbeddedServer(tmp_path, options) as server:
        client = await nats.connect(server.url)
        payload = client.max_payload
        config = _read(f"{server.monitor_url}/jsz?config=true")["config"]
        await client.close()

    assert payload == 4096
    assert config["max_storage"] == 10_000_000


async def test_a_second_server_on_the_same_store_is_refused(nats_server: EmbeddedServer) -> None:
    """The message names the process that has the store."""
    second = EmbeddedServer(nats_server.folder)

    with pytest.raises(ServerFailed, match=f"process id {nats_server.pid}"):
        await second.start()


async def test_a_store_left_by_a_killed_server_is_free_at_once(
    nats_server: EmbeddedServer,
) -> None:
    """No stale lock has to be removed by hand."""
    nats_server.kill()

    async with EmbeddedServer(nats_server.folder) as second:
        assert second.is_running


async def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """A kill -9 of whoever started it leaves no server behind."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from logpipeline.embedded import EmbeddedServer\n"
        "async def main():\n"
        "    async with EmbeddedServer(pathlib.Path(sys.argv[1])) as server:\n"
        "        print(server.pid, flush=True)\n"
        "        await server.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = Popen([sys.executable, "-c", program, str(tmp_path)], stdout=PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()

    await eventually(lambda: not _is_alive(pid), what=f"the server {pid} ends")


async def test_a_suspended_server_can_be_stopped(nats_server: EmbeddedServer) -> None:
    """A frozen server takes no longer to stop than a busy one."""
    nats_server.suspend()
    begun = time.monotonic()

    await nats_server.stop()

    assert time.monotonic() - begun < 5
    assert not nats_server.is_running


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The error carries the end of the server's own log."""
    server = EmbeddedServer(tmp_path, ServerOptions(sync_interval="sometimes"))

    with pytest.raises(ServerFailed, match="sometimes"):
        await server.start()

    assert not server.is_running


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """A port that somebody else has is a mistake to mend, not to work around."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(ServerFailed, match=f"port {port} is in use"):
            await EmbeddedServer(tmp_path, ServerOptions(port=port)).start()


async def test_an_old_server_is_refused(tmp_path: Path) -> None:
    """The message names both versions."""
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.10.29'\n")
    old.chmod(0o755)

    with pytest.raises(ServerFailed, match=r"2\.10\.29, and 2\.14\.3 or newer"):
        await EmbeddedServer(tmp_path / "data", ServerOptions(binary=old)).start()


async def test_a_missing_server_is_named(tmp_path: Path) -> None:
    """The message says which file could not be run."""
    missing = tmp_path / "nats-server"

    with pytest.raises(ServerFailed, match=str(missing)):
        await EmbeddedServer(tmp_path / "data", ServerOptions(binary=missing)).start()


async def _is_refused(server: EmbeddedServer, token: str | None = None) -> bool:
    client = Client()
    try:
        await client.connect(server.url, token=token, allow_reconnect=False)
    except nats.errors.Error:
        return True
    finally:
        await client.close()
    return False


def _read(url: str) -> dict[str, dict[str, object]]:
    with urlopen(url, timeout=10) as answer:
        found: dict[str, dict[str, object]] = json.load(answer)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
