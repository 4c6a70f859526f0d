"""From a resource to streams that work: on one server, on a shared one, on a cluster."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logpipeline import embedded
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.export import export_streams
from logpipeline.plan.model import Kind
from logpipeline.spec import LogPipeline, parse
from logpipeline.subjects import Subjects
from waiting import WITHIN_S, eventually


def pipeline(name: str = "demo", **spec: Any) -> LogPipeline:
    """The pipeline default/*name* with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


async def connect(stack: AsyncExitStack, server: EmbeddedServer) -> JetStream:
    """JetStream of *server*, for as long as *stack* stands."""
    connection = Connection(NatsOptions(servers=(server.url,)))
    await connection.start(patience_s=WITHIN_S)
    stack.push_async_callback(connection.close)
    return JetStream(connection)


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of this test's server."""
    async with AsyncExitStack() as stack:
        yield await connect(stack, nats_server)


async def reconcile(js: JetStream, of: LogPipeline) -> None:
    """Make JetStream as *of* says, and see that it then is."""
    report = await apply(js, await plan_pipeline(js, of), allow_data_loss=False)
    assert report.is_complete, report
    plan = await plan_pipeline(js, of)
    assert plan.is_empty, plan.steps


async def test_a_resource_with_nothing_but_a_name_works(js: JetStream) -> None:
    """Its streams take a line of any host, and its plan is empty afterwards."""
    await reconcile(js, minimal := pipeline())

    subjects = Subjects(minimal.names.subject, minimal.spec.partitions)
    for host in ("web1.example.net", "node-a"):
        ack = await js.publish(subjects.of_host(host), b"line\n")
        partition, _ = subjects.read(subjects.of_host(host))
        assert ack.stream == minimal.names.stream(partition)


async def test_every_kind_of_consumer_is_made_as_wanted(js: JetStream) -> None:
    """The server takes each template, and what it makes of it is no difference."""
    templates: list[dict[str, Any]] = [
        {"name": "plain"},
        {"name": "bounded", "maxDeliver": 3, "backoff": ["1s", "5s"], "maxAckPending": 10},
        {"name": "pulls", "maxWaiting": 4, "maxRequestBatch": 9, "maxRequestExpires": "30s"},
        {"name": "headers", "headersOnly": True, "ackPolicy": "none", "deliverPolicy": "new"},
        {"name": "last", "deliverPolicy": "lastPerSubject", "memStorage": True},
        {"name": "seq", "deliverPolicy": "byStartSequence", "optStartSeq": 5},
        {
            "name": "time",
            "deliverPolicy": "byStartTime",
            "optStartTime": "2026-01-01T02:00:00.500+02:00",
            "replayPolicy": "original",
        },
        {"name": "short", "durable": False, "filterHost": "web1.example.net"},
        {"name": "push", "type": "push", "ackPolicy": "none", "deliverGroup": "readers"},
        {
            "name": "steady",
            "type": "push",
            "ackPolicy": "explicit",
            "deliverSubject": "steady",
            "flowControl": True,
            "idleHeartbeat": "5s",
            "rateLimitBps": 1_000_000,
        },
    ]

    await reconcile(js, pipeline(partitions=2, consumers=templates))


async def test_every_setting_of_a_stream_is_made_as_wanted(js: JetStream) -> None:
    """A resource that sets all that can be set leaves nothing to do either."""
    settings = {
        "maxMsgs": 1000,
        "maxMsgSize": 100_000,
        "maxMsgsPerSubject": 100,
        "maxConsumers": 50,
        "maxBytes": "10Mi",
        "maxAge": "1m",
        "duplicateWindow": "30s",
        "discard": "old",
        "compression": "s2",
        "denyDelete": True,
        "denyPurge": True,
        "allowDirect": False,
        "metadata": {"team": "logs"},
        "overrides": [{"partitions": "1", "maxAge": "10s", "maxBytes": "1Mi"}],
    }

    await reconcile(js, pipeline(partitions=2, stream=settings))


async def test_two_pipelines_on_one_server_do_not_meet(js: JetStream) -> None:
    """By default their names differ; given the same subject, the second one is stopped."""
    await reconcile(js, pipeline("one"))
    await reconcile(js, pipeline("two"))

    same = await plan_pipeline(js, pipeline("three", subject=pipeline("one").names.subject))

    assert {problem.id for problem in same.blocking} == {"subjects-overlap"}


async def test_an_exported_stream_is_adopted_without_a_change(js: JetStream) -> None:
    """What people bring along stays as it is, but for our mark."""
    await js.call(
        "STREAM.CREATE.APP_0",
        {"name": "APP_0", "subjects": ["app.p0.>"], "max_age": 10**12, "max_bytes": 10**7},
    )
    found = await js.stream_info("APP_0")
    assert found is not None

    plan = await plan_pipeline(js, parse(export_streams([found["config"]])))

    (step,) = [step for step in plan.steps if step.kind is not Kind.CREATE]
    assert (step.stream, step.kind) == ("APP_0", Kind.IN_PLACE)
    assert {change.field for change in step.changes} == {"metadata", "max_consumers"}


async def test_replicas_are_made_and_changed_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers take three replicas, and fewer of them later in place."""
    names = _clustered(monkeypatch, 3)
    async with AsyncExitStack() as stack:
        servers = [
            EmbeddedServer(tmp_path / name, ServerOptions(server_name=name)) for name in names
        ]
        for server in servers:
            stack.callback(server.kill)
        await asyncio.gather(*(server.start() for server in servers))
        js = await connect(stack, servers[0])

        for replicas in (3, 1):
            await reconcile(js, pipeline(partitions=2, stream={"replicas": replicas}))
            done: bool = await eventually(partial(_has_replicas, js, replicas))
            assert done


async def _has_replicas(js: JetStream, replicas: int) -> bool:
    info = await js.stream_info(pipeline().names.stream(0))
    assert info is not None
    return len(info["cluster"].get("replicas", ())) == replicas - 1


def _clustered(monkeypatch: pytest.MonkeyPatch, servers: int) -> list[str]:
    """Let servers of the names that this returns find each other."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(servers)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = {f"s{number}": each.getsockname()[1] for number, each in enumerate(sockets)}
    usual = embedded.render_config

    def render(options: ServerOptions, *rest: Any) -> str:
        cluster = {
            "name": "three",
            "listen": f"127.0.0.1:{ports[options.server_name]}",
            "routes": [f"nats://127.0.0.1:{port}" for port in ports.values()],
        }
        return json.dumps({**json.loads(usual(options, *rest)), "cluster": cluster})

    monkeypatch.setattr(embedded, "render_config", render)
    return list(ports)
