"""The managed server as its children configure it: a real server with that very configuration, and
real components that log in as their roles.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from logpipeline.credentials import nats_options
from logpipeline.nats.connection import ConnectFailed, Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.server_binary import find_binary
from logpipeline.spec import LogPipeline, parse
from logpipeline_cli.local.ports import free_port
from logpipeline_collector import service as collector_service
from logpipeline_collector.config import from_pipeline as collector_config
from logpipeline_operator.children import config, nats_auth, nats_conf
from logpipeline_operator.jetstream.look import Permission, look
from logpipeline_shipper import service as shipper_service
from logpipeline_shipper.config import from_pipeline as shipper_config
from waiting import eventually

PASSWORDS = {role: f"-{role}-0123456789abcdef" for role in nats_auth.ROLES}
MEMBER = "prod-collector-0"
START_DEADLINE_S = 20.0


def resource(**spec: Any) -> LogPipeline:
    """The pipeline *prod*, with two partitions."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "prod", "namespace": "logging", "uid": "1-2"},
            "spec": {"partitions": 2, **spec},
        }
    )


@dataclass(frozen=True, slots=True)
class Managed:
    """A running server, and the folder in which each role's files lie as in its pods."""

    pipeline: LogPipeline
    url: str
    folder: Path

    def at(self, role: str) -> Path:
        """The folder of *role*'s credentials."""
        return self.folder / role

    def options(self, role: str, local: LogPipeline) -> NatsOptions:
        """How the component with the resource *local* logs in, its files being in our folder."""
        text = config.render(local).replace(
            str(config.FOLDER / config.NATS_FOLDER), str(self.at(role))
        )
        moved = parse(yaml.safe_load(text))
        return nats_options(moved, servers=(self.url,))

    def operator(self) -> NatsOptions:
        """How the operator logs in."""
        own = config.nats_options(self.pipeline, self.at(nats_auth.OPERATOR))
        return replace(own, servers=(self.url,))


@asynccontextmanager
async def managed(pipeline: LogPipeline, folder: Path) -> AsyncIterator[Managed]:
    """Run a server with the configuration and the Secret that *pipeline*'s children would have."""
    port, monitor = free_port(), free_port()
    folder.mkdir()
    data = nats_auth.secret(pipeline, PASSWORDS)["stringData"]
    text = nats_conf.render(pipeline)
    for there, here in (
        ("0.0.0.0:4222", f"127.0.0.1:{port}"),
        ("0.0.0.0:8222", f"127.0.0.1:{monitor}"),
        (f'"{nats_conf.STORE}"', f'"{folder}/store"'),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "nats.conf").write_text(text)
    (folder / nats_auth.USERS_FILE).write_text(data[nats_auth.USERS_FILE])
    for role in nats_auth.USERS:
        (folder / role / "user").mkdir(parents=True)
        for file, key in zip(("user", "password"), nats_auth.keys(role), strict=True):
            (folder / role / "user" / file).write_text(data[key])
    with server(folder):
        await eventually(lambda: is_healthy(monitor), within_s=START_DEADLINE_S)
        yield Managed(pipeline, f"nats://127.0.0.1:{port}", folder)


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """Run nats-server with the configuration in *folder*."""
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [find_binary(), "--config", folder / "nats.conf"],
            stdout=log,
            stderr=log,
            env={**os.environ, "POD_NAME": "prod-nats-0"},
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def is_healthy(monitor_port: int) -> bool:
    """Whether the server passes the full check, as its probes ask for."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor_port}/healthz", timeout=1) as page:
            return bool(page.status == 200)
    except OSError:
        return False


@asynccontextmanager
async def connected(options: NatsOptions) -> AsyncIterator[JetStream]:
    """Connect with *options*."""
    connection = Connection(options)
    await connection.start(patience_s=10.0)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def running(at: Managed, logs: Path, files: Path) -> AsyncIterator[None]:
    """Run a collector, which writes to *files*, and a shipper, which reads *logs*."""
    stop = asyncio.Event()
    collector, shipper = config.for_collector(at.pipeline), config.for_shipper(at.pipeline)
    reads = replace(
        shipper,
        spec=replace(
            shipper.spec,
            local=replace(
                shipper.spec.local,
                shippers=(replace(shipper.spec.local.shippers[0], pods=str(logs)),),
            ),
        ),
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            collector_service.run(
                collector_config(
                    collector,
                    member=MEMBER,
                    data=files,
                    nats=at.options(nats_auth.COLLECTOR, collector),
                ),
                stop,
            )
        )
        tasks.create_task(
            shipper_service.run(
                shipper_config(
                    reads,
                    shipper=config.NODE_SHIPPER,
                    data=files / "positions",
                    nats=at.options(nats_auth.SHIPPER, shipper),
                    host="node-a",
                ),
                stop,
            )
        )
        try:
            yield
        finally:
            stop.set()


def denials(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server denied to any of the components."""
    return [
        str(getattr(record, "reason", ""))
        for record in caplog.records
        if "denies a permission" in record.getMessage()
    ]


@pytest.mark.parametrize("domain", ["", "hub"])
async def test_each_role_may_do_its_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, domain: str
) -> None:
    """Lines get from a node's logs to a collector's files through the managed server, and nobody is
    denied anything on the way.
    """
    caplog.set_level(logging.INFO)
    container = tmp_path / "pods" / "shop_web-1_1234" / "web"
    container.mkdir(parents=True)
    lines = [f"2026-01-31T12:00:00.00000000{number}Z stdout F line {number}" for number in (1, 2)]
    (container / "0.log").write_text("".join(f"{line}\n" for line in lines))
    archived = tmp_path / "files" / "logs" / "node-a" / "shop" / "web-1" / "web.log"
    async with (
        managed(resource(nats={"jsDomain": domain}), tmp_path / "nats") as at,
        connected(at.operator()) as js,
    ):
        await look(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        async with running(at, tmp_path / "pods", tmp_path / "files"):
            await eventually(
                lambda: archived.exists() and archived.read_text() == "line 1\nline 2\n",
                within_s=20,
            )
        await look(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])

    assert denials(caplog) == []


def is_denied(js: JetStream, subject: str) -> bool:
    """Whether the server said so; the client hands its words on in small letters."""
    return f'"{subject}"'.lower() in (js.connection.problem or "").lower()


NAMES = resource().names
KV = f"$KV.{NAMES.state_bucket}"


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("collector", f"{NAMES.subject}.p0.node-a"),
        ("collector", f"$JS.API.STREAM.CREATE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.UPDATE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.DELETE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.PURGE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.STREAM.MSG.DELETE.{NAMES.stream(0)}"),
        ("collector", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a.{NAMES.subject}.p0.node-a"),
        ("collector", f"{KV}.assignment.main"),
        ("collector", f"{KV}.epoch.other.0"),
        ("collector", "_INBOX_shipper.x.1"),
        ("shipper", f"{KV}.epoch.main.0"),
        ("shipper", f"{NAMES.control_subject}.committed.p0.node-a"),
        ("shipper", f"{NAMES.dead_letter_subject}.p0.reason"),
        ("shipper", f"$JS.API.STREAM.INFO.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.DIRECT.GET.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a"),
        ("operator", "$SYS.REQ.SERVER.PING"),
        ("operator", "somebody.elses"),
    ],
)
async def test_no_role_may_say_more(managed_nats: Managed, role: str, subject: str) -> None:
    """A stolen credential reaches no further than what its role needs."""
    async with connected(credentials_of(managed_nats, role)) as js:
        await js.connection.publish(subject, b"{}")
        await eventually(lambda: is_denied(js, subject), within_s=5)


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("collector", "_INBOX_shipper.>"),
        ("collector", f"{NAMES.subject}.>"),
        ("shipper", "_INBOX.>"),
        ("shipper", "_INBOX_operator.>"),
        ("shipper", f"{NAMES.subject}.>"),
        ("shipper", f"{KV}.>"),
        ("operator", ">"),
    ],
)
async def test_no_role_may_hear_more(managed_nats: Managed, role: str, subject: str) -> None:
    """Nobody hears the lines of others, nor the answers that they get."""
    async with connected(credentials_of(managed_nats, role)) as js:
        await js.connection.listen(subject, lambda message: None)
        await eventually(lambda: is_denied(js, subject), within_s=5)


async def test_nobody_comes_in_without_a_password(managed_nats: Managed) -> None:
    """Not even to look."""
    connection = Connection(NatsOptions(servers=(managed_nats.url,)))

    with pytest.raises(ConnectFailed, match="credentials"):
        await connection.start(patience_s=1.0)


async def test_a_role_s_name_alone_is_no_password(managed_nats: Managed) -> None:
    """The variables of the configuration are resolved, not taken for texts."""
    options = credentials_of(managed_nats, nats_auth.OPERATOR)
    assert options.password_file is not None
    options.password_file.write_text(f"${nats_auth.variable(nats_auth.OPERATOR)}")

    with pytest.raises(ConnectFailed, match="credentials"):
        await Connection(options).start(patience_s=1.0)


@pytest.fixture
async def managed_nats(tmp_path: Path) -> AsyncIterator[Managed]:
    """A managed server of this test alone."""
    async with managed(resource(), tmp_path / "nats") as at:
        yield at


def credentials_of(at: Managed, role: str) -> NatsOptions:
    """How *role* logs in."""
    if role == nats_auth.OPERATOR:
        return at.operator()
    build = config.for_collector if role == nats_auth.COLLECTOR else config.for_shipper
    return at.options(role, build(at.pipeline))
