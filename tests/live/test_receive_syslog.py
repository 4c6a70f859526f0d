"""What `logpipeline receive syslog` promises, with the programs that send syslog."""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import resource
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from components.receiving import Receiver, address
from logpipeline_cli.receiving.spool import OPEN_FILES_MAX
from waiting import eventually

pytestmark = pytest.mark.skipif(
    shutil.which("logger") is None, reason="logger is not installed (Debian: bsdutils)"
)


@pytest.fixture
def port() -> int:
    """A free port."""
    return address()[1]


@pytest.fixture
def receiver(tmp_path: Path, port: int) -> Iterator[Receiver]:
    """A receiver of UDP and TCP, as JSON, whose longest message has 2,048 bytes."""
    where = f"127.0.0.1:{port}"
    made = Receiver(
        tmp_path, "syslog", "--udp", where, "--tcp", where, "-o", "json", "--message-bytes", "2Ki"
    )
    made.start()
    yield made
    made.kill()


def logger(port: int, *words: str) -> None:
    """Send a message as the program does."""
    command = ["logger", "--server", "127.0.0.1", "--port", str(port), "-t", "app", *words]
    subprocess.run(command, check=True, timeout=30)


def made_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate of this machine, and its key."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out",
         str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def arrived(receiver: Receiver, count: int) -> list[dict[str, object]]:
    """Return the messages in the files, once there are *count*."""
    await eventually(lambda: len(receiver.lines()) >= count, what=f"{count} messages")
    return [json.loads(line) for line in receiver.lines()]


async def test_messages_of_logger_are_in_the_file_of_their_host_and_app(
    receiver: Receiver, port: int
) -> None:
    """By UDP and TCP, in both forms, with both framings."""
    await receiver.ready()
    texts = []
    for transport in (["--udp"], ["--tcp"], ["--tcp", "--octet-count"]):
        for form in ("--rfc3164", "--rfc5424=notq"):
            texts.append(f"text {transport} {form}")
            await asyncio.to_thread(logger, port, *transport, form, texts[-1])
            await arrived(receiver, len(texts))

    messages = await arrived(receiver, len(texts))
    [file] = receiver.received.rglob("*.log")
    assert [each["message"] for each in messages] == texts
    assert {each["form"] for each in messages} == {"rfc3164", "rfc5424"}
    assert file == receiver.received / socket.gethostname() / "app.log"


async def test_messages_of_python_keep_their_line_breaks(receiver: Receiver, port: int) -> None:
    """A traceback by UDP is one message, and one line."""
    await receiver.ready()
    handler = logging.handlers.SysLogHandler(("127.0.0.1", port))
    record = logging.LogRecord("name", logging.ERROR, "path", 1, "a\nb\0c", None, None)
    handler.emit(record)
    handler.close()

    [message] = await arrived(receiver, 1)
    assert message["message"] == "a\nb\0c"
    assert message["severity"] == "err"


async def test_python_by_tcp_is_framed_by_nuls(tmp_path: Path, port: int) -> None:
    """As `--delimiter nul` says; raw lines show a line break as rsyslog does."""
    receiver = Receiver(tmp_path, "syslog", "--tcp", f"127.0.0.1:{port}", "--delimiter", "nul")
    receiver.start()
    try:
        await receiver.ready()
        where = ("127.0.0.1", port)
        handler = logging.handlers.SysLogHandler(where, socktype=socket.SOCK_STREAM)
        for text in ("a\nb", "c"):
            handler.emit(logging.LogRecord("name", logging.INFO, "path", 1, text, None, None))
        handler.close()
        await eventually(lambda: len(receiver.lines()) == 2, what="both messages")
    finally:
        receiver.kill()
    assert receiver.lines() == ["<14>a#012b", "<14>c"]


async def test_a_long_message_is_cut_and_says_so(receiver: Receiver, port: int) -> None:
    """The next one of the connection is whole; both are counted."""
    await receiver.ready()
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(b"<14>h app: " + b"x" * 5000 + b"\n<14>next\n<14>half")
    long, *others = sorted(await arrived(receiver, 3), key=lambda each: -len(str(each)))

    assert long["cut_bytes"] == 11 + 5000 - 2048
    assert sorted(str(each["message"]) for each in others) == ["half", "next"]
    numbers = await receiver.metrics()
    assert (numbers["cut_messages_total"], numbers["messages_total"]) == (1, 3)


async def test_what_was_taken_is_in_the_files_after_a_stop(receiver: Receiver, port: int) -> None:
    """SIGTERM loses nothing that had arrived, and ends with 0."""
    await receiver.ready()
    with socket.create_connection(("127.0.0.1", port)) as sender:
        for number in range(2000):
            sender.sendall(b"<14>%d\n" % number)
        await eventually(lambda: len(receiver.lines()) > 0, what="the first lines")
        messages = await eventually(
            lambda: _all_taken(receiver, 2000), what="all messages are taken"
        )
        code = await receiver.stop()

    assert (code, messages) == (0, 2000)
    assert [json.loads(line)["message"] for line in receiver.lines()] == [
        str(number) for number in range(2000)
    ]


async def _all_taken(receiver: Receiver, count: int) -> float:
    numbers = await receiver.metrics()
    taken = numbers.get("messages_total", 0.0)
    assert taken == count
    return taken


async def test_connections_beyond_the_limit_are_closed(tmp_path: Path, port: int) -> None:
    """The others go on, and the closed one is counted."""
    where = f"127.0.0.1:{port}"
    receiver = Receiver(tmp_path, "syslog", "--tcp", where, "--connections", "1")
    receiver.start()
    try:
        await receiver.ready()
        with socket.create_connection(("127.0.0.1", port)) as first:
            first.sendall(b"<14>one\n")
            await eventually(lambda: receiver.lines() == ["<14>one"], what="the first line")
            with socket.create_connection(("127.0.0.1", port), timeout=30) as second:
                assert second.recv(1) == b""
            first.sendall(b"<14>two\n")
            await eventually(lambda: len(receiver.lines()) == 2, what="the second line")
        assert (await receiver.metrics())["refused_connections_total"] == 1
    finally:
        receiver.kill()


async def test_a_connection_counts_before_its_handshake(tmp_path: Path, port: int) -> None:
    """A stranger who never finishes it takes a place, so that descriptors do not run out."""
    certificate, key = made_certificate(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--connections", "1")
    receiver = Receiver(tmp_path, "syslog", "--tls", f"127.0.0.1:{port}", *options)
    receiver.start()
    try:
        await receiver.ready()
        with (
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port), timeout=5) as second,
        ):
            # A handshake has ten seconds.
            assert await asyncio.to_thread(second.recv, 1) == b""
            assert (await receiver.metrics())["refused_connections_total"] == 1
            assert await receiver.stop() == 0
    finally:
        receiver.kill()
    assert "connections beyond --connections are closed" in receiver.log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another process's limits")
async def test_so_many_connections_and_files_may_be_open(tmp_path: Path, port: int) -> None:
    """The limit that most systems begin with is lower than what --connections and files need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    receiver = Receiver(tmp_path, "syslog", "--tcp", f"127.0.0.1:{port}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        receiver.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        await receiver.ready()
        limits = Path(f"/proc/{receiver.pid}/limits").read_text()
    finally:
        receiver.kill()

    (row,) = (row for row in limits.splitlines() if row.startswith("Max open files"))
    assert int(row.split()[3]) >= 1000 + OPEN_FILES_MAX


async def test_tls_takes_clients_of_its_authority_only(tmp_path: Path, port: int) -> None:
    """A client without a certificate is refused, and what it sent is nowhere."""
    certificate, key = made_certificate(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    words = ("--tls", f"127.0.0.1:{port}", *options, "--tls-client-ca", str(certificate))
    receiver = Receiver(tmp_path, "syslog", *words)
    receiver.start()
    try:
        await receiver.ready()
        context = ssl.create_default_context(cafile=certificate)
        # Some versions of OpenSSL tell the client, others only end the connection, which the client
        # may then be about to shut.
        with suppress(OSError):
            await asyncio.to_thread(_send, context, port, b"<14>stranger\n")
        context.load_cert_chain(certificate, key)
        await asyncio.to_thread(_send, context, port, b"11 <14>by\ntls")
        await eventually(lambda: receiver.lines() == ["<14>by#012tls"], what="the message")
    finally:
        receiver.kill()


def _send(context: ssl.SSLContext, port: int, data: bytes) -> None:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as sender:
        sender.sendall(data)
        # What the server thinks of the client's certificate comes after the handshake.
        sender.shutdown(socket.SHUT_WR)
        sender.recv(1)


async def test_what_the_kernel_drops_is_counted(receiver: Receiver, port: int) -> None:
    """While the receiver stands still, its buffer fills; what arrives beyond is gone."""
    await receiver.ready()
    receiver.freeze()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(20_000):
            sender.sendto(b"<14>" + b"x" * 2000, ("127.0.0.1", port))
    receiver.thaw()

    numbers = await eventually(lambda: _accounted(receiver, 20_000), what="all are accounted for")
    assert numbers["udp_dropped_datagrams"] > 0
    assert len(receiver.lines()) == numbers["messages_total"]


async def _accounted(receiver: Receiver, count: int) -> dict[str, float]:
    numbers = await receiver.metrics()
    assert numbers.get("lines_total", 0) + numbers["udp_dropped_datagrams"] == count
    return numbers
