"""TLS of the managed server: a real server with the children's own configuration and certificates,
and real components that check them.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from components.managed_parts import MEMBER, running
from components.managed_server import PASSWORDS, Managed, connected, managed, resource, server
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline_operator.certificates import upkeep
from logpipeline_operator.children import config, credentials, names, nats_conf, nats_tls
from logpipeline_operator.jetstream import Permission, reconcile
from ports import free_port
from waiting import eventually

REQUIRED = {"managed": {"tls": "Required"}}
OPTIONAL = {"managed": {"tls": "Optional"}}


async def refusal(options: NatsOptions) -> str:
    """Why the server does not let *options* in."""
    connection = Connection(options)
    await connection.start()
    await eventually(lambda: connection.is_connected or connection.problem)
    await connection.close()
    return connection.problem or ""


async def plain_answer(at: Managed) -> str:
    """What a client gets that speaks plain text, with a password that is right; nothing where the
    server ends the connection.
    """
    login = {"user": "collector", "pass": PASSWORDS["collector"], "verbose": False}
    port = int(at.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await reader.readline()
        writer.write(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        async with asyncio.timeout(10):
            return (await reader.readline()).decode()
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


async def test_clients_check_whom_they_talk_to(tmp_path: Path) -> None:
    """Each role gets in under TLS. None sends a word to a server of another authority, or of
    another name, and a client that speaks plain text is refused, with any password.
    """
    pipeline = resource(nats=REQUIRED)
    async with managed(pipeline, tmp_path / "nats") as at:
        local = config.for_collector(pipeline)
        options = at.options(credentials.COLLECTOR, local)
        assert await refusal(options) == ""
        assert await refusal(at.options(credentials.SHIPPER, config.for_shipper(pipeline))) == ""
        assert await refusal(at.options(credentials.SHIPPER, config.for_sidecar(pipeline))) == ""
        assert await refusal(at.operator()) == ""
        former = config.for_sidecar(pipeline, knows_tls=False)
        stranger = upkeep({}, ("other",), datetime.now(UTC)).files
        (tmp_path / "other.crt").write_bytes(stranger[nats_tls.CA_FILE])

        assert "certificate" in await refusal(replace(options, ca_file=tmp_path / "other.crt"))
        assert "mismatch" in (await refusal(replace(options, tls_name="other.svc"))).lower()
        assert "certificate" in await refusal(at.options(credentials.SHIPPER, former))
        assert await plain_answer(at) == ""


async def test_a_server_that_leaves_it_open_takes_both(tmp_path: Path) -> None:
    """Old clients get in without TLS, while those who know the server's authority insist on it."""
    pipeline = resource(nats=OPTIONAL)
    async with managed(pipeline, tmp_path / "nats") as at:
        options = at.options(credentials.COLLECTOR, config.for_collector(pipeline))
        former = at.options(credentials.SHIPPER, config.for_sidecar(pipeline, knows_tls=False))
        stranger = upkeep({}, ("other",), datetime.now(UTC)).files
        (tmp_path / "other.crt").write_bytes(stranger[nats_tls.CA_FILE])

        assert await refusal(options) == ""
        assert await refusal(former) == ""
        assert "PONG" in await plain_answer(at)
        assert "certificate" in await refusal(replace(options, ca_file=tmp_path / "other.crt"))


async def test_no_line_is_lost_while_certificates_and_authority_change(tmp_path: Path) -> None:
    """A pipeline goes through all steps of an authority's renewal, and then through the loss of its
    Secret, while lines come: shipper and collector follow by themselves, and each line arrives
    once.
    """
    pipeline = resource(nats=REQUIRED)
    container = tmp_path / "pods" / "shop_web-1_1234" / "web"
    container.mkdir(parents=True)
    collected = tmp_path / "files" / "logs" / "node-a" / "shop" / "web-1" / "web.log"
    written: list[str] = []

    def write() -> None:
        with (container / "0.log").open("a") as log:
            for _ in range(50):
                written.append(f"line {len(written)}")
                log.write(f"2026-01-31T12:00:00.000000001Z stdout F {written[-1]}\n")

    def has_all() -> bool:
        return collected.exists() and collected.read_text().splitlines() == written

    async with managed(pipeline, tmp_path / "nats") as at:
        known_as = nats_tls.server_names(pipeline)
        steps = renewal(known_as)
        at.certify(steps[0])
        at.trust(steps[0])
        await at.restart()
        async with connected(at.operator()) as js:
            await reconcile(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        async with running(at, tmp_path / "pods", tmp_path / "files"):
            write()
            await eventually(has_all)
            lost = upkeep({}, known_as, datetime.now(UTC)).files
            for step in (*steps[1:], lost):
                write()
                at.certify(step)
                if step is lost:
                    at.trust(step)
                await at.restart()
                write()
                # In a renewal clients see a change later than servers do.
                await eventually(has_all)
                at.trust(step)
                assert await served(at) == step[nats_tls.CERTIFICATE_FILE].decode().strip()


def renewal(server_names: tuple[str, ...]) -> list[dict[str, bytes]]:
    """The files of a server whose authority is renewed, one step after the other; all of them are
    valid now.
    """
    now = datetime.now(UTC)
    files: dict[str, bytes] = {}
    found = []
    for days in (-2435, -3, -1.5, -0.4, 0.7):
        made = upkeep(files, server_names, now + timedelta(days=days))
        assert made.why
        files = made.files
        found.append(files)
    return found[1:]


async def served(at: Managed) -> str:
    """The certificate that the server shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", int(at.url.rpartition(":")[2]))
    try:
        await reader.readline()
        await writer.start_tls(context)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
    return ssl.DER_cert_to_PEM_cert(found).strip()


async def test_servers_of_a_cluster_prove_who_they_are(tmp_path: Path) -> None:
    """Two servers with certificates of one authority find each other; a third one that knows the
    password, and has a certificate of its own making, stays outside.
    """
    pipeline = resource(nats={"managed": {"tls": "Required", "replicas": 3}})
    now = datetime.now(UTC)
    ours = upkeep({}, ("localhost",), now).files
    files = [ours, ours, upkeep({}, ("localhost",), now).files]
    routes = [free_port() for _ in files]
    monitors = [free_port() for _ in files]
    with ExitStack() as processes:
        for number, held in enumerate(files):
            folder = tmp_path / f"server-{number}"
            (folder / "tls").mkdir(parents=True)
            for file in nats_tls.SERVER_FILES:
                (folder / "tls" / file).write_bytes(held[file])
            secret = credentials.users_secret(pipeline, PASSWORDS)["stringData"]
            for file in (credentials.USERS_FILE, credentials.ROUTES_FILE):
                text = secret[file]
                for other, port in enumerate(routes):
                    host = f"{names.nats(pipeline)}-{other}.{names.nats_headless(pipeline)}"
                    text = text.replace(
                        f"{host}.{pipeline.namespace}.svc:6222", f"localhost:{port}"
                    )
                (folder / file).write_text(text)
            text = nats_conf.render(pipeline)
            for there, here in (
                ("0.0.0.0:4222", f"127.0.0.1:{free_port()}"),
                ("0.0.0.0:8222", f"127.0.0.1:{monitors[number]}"),
                ("0.0.0.0:6222", f"127.0.0.1:{routes[number]}"),
                (f'"{nats_conf.STORE}"', f'"{folder}/store"'),
                (nats_conf.TLS_FOLDER, f"{folder}/tls"),
            ):
                assert there in text
                text = text.replace(there, here)
            (folder / "nats.conf").write_text(text)
            processes.enter_context(server(folder, f"prod-nats-{number}"))
        await eventually(lambda: route_names(monitors[0]) == {"prod-nats-1"})
        stranger = tmp_path / "server-2" / "server.log"
        await eventually(lambda: "tls" in stranger.read_text().lower())

        assert route_names(monitors[0]) == {"prod-nats-1"}
        assert route_names(monitors[2]) == set()


def route_names(monitor_port: int) -> set[str]:
    """The names of the servers that the one with *monitor_port* has routes to."""
    url = f"http://127.0.0.1:{monitor_port}/routez"
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            routes = json.loads(page.read())["routes"] or ()
    # Also one that answers, and ends before its answer.
    except OSError as error:
        raise AssertionError("the server shows no pages yet") from error
    # A server that did not prove yet who it is has no name.
    return {route["remote_name"] for route in routes if route.get("remote_name")}
