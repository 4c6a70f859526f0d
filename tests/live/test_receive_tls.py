"""TLS of `logpipeline receive`: whom it takes, and a certificate that is renewed meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.bare.certificates import Identity, make
from components.component import Component
from components.receiving import Receiver, address
from logpipeline_cli.receiving import tls
from logpipeline_cli.receiving.tls import BadCertificate, ServerTls
from waiting import eventually

BODY = (
    b'{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":'
    b'{"stringValue":"shop"}}]},"scopeLogs":[{"logRecords":[{"body":{"stringValue":"paid"}}]}]}]}'
)
FIRST, SECOND = "first", "second"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority's folder, with two certificates for one server."""
    folder = tmp_path_factory.mktemp("certificates")
    make(folder, [Identity(name, name, serves=("IP:127.0.0.1",)) for name in (FIRST, SECOND)])
    return folder


@pytest.fixture
def shown(certificates: Path, tmp_path: Path) -> Path:
    """A folder with the files of a server, which may be replaced; now they are the first one's."""
    folder = tmp_path / "shown"
    folder.mkdir()
    replace(certificates, folder, FIRST)
    return folder


def replace(certificates: Path, folder: Path, name: str, *suffixes: str) -> None:
    """Renew the server's files in *folder*, those with *suffixes* alone where they are named."""
    for suffix in suffixes or ("crt", "key"):
        new = folder / "new"
        shutil.copy(certificates / f"{name}.{suffix}", new)
        new.replace(folder / f"tls.{suffix}")


@asynccontextmanager
async def serving(server_tls: ServerTls) -> AsyncIterator[int]:
    """Listen, and return the port."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=server_tls.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def name_shown(certificates: Path, port: int) -> str:
    """Return whose certificate a new connection is shown."""
    context = ssl.create_default_context(cafile=certificates / "ca.crt")
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("peercert")
    writer.close()
    return str(dict(pair for (pair,) in found["subject"])["commonName"])


async def test_a_renewed_certificate_is_shown_to_new_connections(
    certificates: Path, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once both of its files are there: with one of them the former is shown."""
    monkeypatch.setattr(tls, "LOOK_S", 0.05)
    server_tls = ServerTls(shown / "tls.crt", shown / "tls.key")
    async with serving(server_tls) as port, asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(server_tls.keep_looking())
        assert await name_shown(certificates, port) == FIRST
        replace(certificates, shown, SECOND, "crt")
        with pytest.raises(
            BadCertificate, match=r"tls\.crt and .*tls\.key: no certificate and key"
        ):
            server_tls.look()
        assert await name_shown(certificates, port) == FIRST
        replace(certificates, shown, SECOND, "key")

        async def is_second() -> bool:
            return await name_shown(certificates, port) == SECOND

        await eventually(is_second)
        looking.cancel()


async def test_otlp_takes_clients_of_its_authority_only(
    certificates: Path, shown: Path, tmp_path: Path
) -> None:
    """A client without a certificate is refused, and what it sent is nowhere."""
    where, port = address()
    options = ("--tls-cert", str(shown / "tls.crt"), "--tls-key", str(shown / "tls.key"))
    words = ("--listen", f"{where}:{port}", *options, "--tls-client-ca")
    receiver = Receiver(tmp_path, "otlp", *words, str(certificates / "ca.crt"))
    receiver.start()
    try:
        await receiver.ready()
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        with pytest.raises(OSError, match=r"(?i)certificate required|reset|closed|EOF|broken"):
            await asyncio.to_thread(post, port, context)
        context.load_cert_chain(certificates / "second.crt", certificates / "second.key")
        assert await asyncio.to_thread(post, port, context) == 200
    finally:
        receiver.kill()
    assert len(receiver.lines()) == 1


def post(port: int, context: ssl.SSLContext) -> int:
    """Return the status of an answer to one record."""
    url, kind = f"https://127.0.0.1:{port}/v1/logs", {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, BODY, kind, method="POST")
    with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
        return int(answer.status)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--tls-cert", "{shown}/tls.crt"], 1, "tls.crt: no certificate and key"),
        (["--tls-cert", "{shown}/none.crt"], 1, "none.crt: No such file"),
        (["--tls-cert", "{all}/first.crt", "--tls-key", "{all}/second.key"], 1, "second.key: no"),
        (
            ["--tls-cert", "{all}/first.crt", "--tls-key", "{all}/first.key",
             "--tls-client-ca", "{all}/first.key"],
            1, "first.key: no certificate",
        ),
        (["--tls-key", "{all}/first.key"], 64, "belong to a --tls-cert"),
    ],
)  # fmt: skip
async def test_files_that_cannot_be_used_are_named(
    certificates: Path, shown: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    """At the start, before anything is listened on."""
    given = [word.format(shown=shown, all=certificates) for word in words]
    command = ("receive", "otlp", "--to", str(tmp_path / "to"), "--listen", "127.0.0.1:0", *given)
    receiver = Component("receive otlp", command, tmp_path / "log")
    receiver.start()
    try:
        assert await receiver.wait() == code
    finally:
        receiver.kill()
    assert said in (tmp_path / "log").read_text()
