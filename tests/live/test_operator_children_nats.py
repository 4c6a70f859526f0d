"""The managed server as its children configure it: a real server with that very configuration, and
real components that log in as their roles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logpipeline.nats.connection import ConnectFailed, Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import PullReader
from logpipeline.partition import partition_of
from logpipeline.spec import LogPipeline
from logpipeline.subjects import advisory_subjects
from logpipeline_collector import service as collector_service
from logpipeline_collector.config import from_pipeline as collector_config
from logpipeline_operator.children import config, nats_auth
from logpipeline_operator.jetstream.look import Permission, look
from logpipeline_shipper import service as shipper_service
from logpipeline_shipper.config import from_pipeline as shipper_config
from managed_server import Managed, connected, managed, resource
from waiting import eventually

MEMBER = "prod-collector-0"


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
    """Lines get from a node's logs to a collector's files through the managed server, what a reader
    gives up becomes a letter, and nobody is denied anything on the way.
    """
    caplog.set_level(logging.INFO)
    container = tmp_path / "pods" / "shop_web-1_1234" / "web"
    container.mkdir(parents=True)
    lines = [f"2026-01-31T12:00:00.00000000{number}Z stdout F line {number}" for number in (1, 2)]
    (container / "0.log").write_text("".join(f"{line}\n" for line in lines))
    archived = tmp_path / "files" / "logs" / "node-a" / "shop" / "web-1" / "web.log"
    async with (
        managed(
            resource(nats={"jsDomain": domain}, consumers=[{"name": "audit"}]), tmp_path / "nats"
        ) as at,
        connected(at.operator()) as js,
    ):
        await look(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])
        async with running(at, tmp_path / "pods", tmp_path / "files"):
            await eventually(
                lambda: archived.exists() and archived.read_text() == "line 1\nline 2\n",
                within_s=20,
            )
            await give_up(js, at.pipeline)
        await look(js, at.pipeline, Permission(may_write=True), lambda assigned: [MEMBER])

    assert denials(caplog) == []


async def give_up(js: JetStream, pipeline: LogPipeline) -> None:
    """Terminate the message of node-a, and return when it is a letter."""
    names = pipeline.names
    partition = partition_of("node-a", pipeline.spec.partitions)
    reader = PullReader(js, names.stream(partition), "audit", pull_bytes=1_000_000)
    await reader.open()
    (delivered,) = await eventually(lambda: reader.take(timeout_s=0.1))
    await js.connection.publish(delivered.message.reply.decode(), b"+TERM")
    await reader.close()
    letter = f"{names.dead_letter_subject}.p{partition}.>"

    async def is_kept() -> bool:
        kept = await js.next_message(names.dead_letter_stream, letter)
        told = await js.next_message(names.dead_letter_stream, "$JS.EVENT.>")
        return kept is not None and told is None

    await eventually(is_kept, within_s=20, what="a letter in the place of what the server said")


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
        ("collector", f"$JS.API.STREAM.PURGE.{NAMES.dead_letter_stream}"),
        ("collector", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a.{NAMES.subject}.p0.node-a"),
        ("collector", f"{KV}.assignment.main"),
        ("collector", f"{KV}.epoch.other.0"),
        ("collector", "_INBOX_shipper.x.1"),
        ("shipper", f"{KV}.epoch.main.0"),
        ("shipper", f"{NAMES.control_subject}.committed.p0.node-a"),
        ("shipper", f"{NAMES.dead_letter_subject}.p0.reason"),
        ("shipper", advisory_subjects(NAMES.stream(0), "audit")[0]),
        ("collector", advisory_subjects(NAMES.stream(0), "audit")[1]),
        ("shipper", f"$JS.API.STREAM.INFO.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.DIRECT.GET.{NAMES.stream(0)}"),
        ("shipper", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a"),
        ("archive", f"{NAMES.subject}.p0.node-a"),
        ("archive", f"$JS.API.STREAM.PURGE.{NAMES.stream(0)}"),
        ("archive", f"$JS.API.STREAM.DELETE.{NAMES.stream(0)}"),
        ("archive", f"$JS.API.STREAM.MSG.DELETE.{NAMES.stream(0)}"),
        ("archive", f"$JS.API.CONSUMER.CREATE.{NAMES.stream(0)}.a"),
        ("archive", "$JS.API.STREAM.NAMES"),
        ("archive", f"{KV}.archive.logging/other"),
        ("archive", f"{KV}.epoch.main.0"),
        ("archive", f"{KV}.assignment.main"),
        ("archive", f"{NAMES.control_subject}.committed.p0.node-a"),
        ("archive", "_INBOX_shipper.x.1"),
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
        ("archive", f"{NAMES.subject}.>"),
        ("archive", f"{KV}.>"),
        ("archive", "_INBOX_collector.>"),
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
    async with managed(resource(archive={"enabled": True}), tmp_path / "nats") as at:
        yield at


def credentials_of(at: Managed, role: str) -> NatsOptions:
    """How *role* logs in."""
    if role == nats_auth.OPERATOR:
        return at.operator()
    build = {
        nats_auth.ARCHIVE: config.for_archive,
        nats_auth.COLLECTOR: config.for_collector,
        nats_auth.SHIPPER: config.for_shipper,
    }[role]
    return at.options(role, build(at.pipeline))
