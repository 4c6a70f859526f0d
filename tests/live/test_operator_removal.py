"""What the end of a pipeline removes from JetStream, and what it leaves to others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from components.external_pipelines import pipeline
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.observe import consumers_of
from logpipeline.plan.removal import remove
from logpipeline.tables.progress import TableProgress, table_key
from waiting import WITHIN_S

OWNER: dict[str, Any] = {
    "subject": "logs",
    "partitions": 2,
    "stream": {"name": "LOGS"},
    "consumers": [{"name": "owners"}],
}
AUDIT: dict[str, Any] = {
    **OWNER,
    "stream": {"name": "LOGS", "external": True},
    "collectors": {"group": "audit"},
    "consumers": [{"name": "audit"}, {"name": "audit-new"}],
}
PROGRESS = TableProgress(path="/table", commit=1, rows=1, at_ns=1, streams={})


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream with the owner's streams, and two other pipelines' consumers on them."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    others = {**AUDIT, "collectors": {"group": "other"}, "consumers": [{"name": "other"}]}
    for name, spec in (("prod", OWNER), ("audit", AUDIT), ("other", others)):
        plan = await plan_pipeline(js, pipeline(name, spec), installation="here")
        await apply(js, plan, allow_data_loss=False)
    yield js
    await connection.close()


async def consumers(js: JetStream) -> set[str]:
    """All consumers of the owner's streams."""
    return {
        f"{stream}/{each['name']}"
        for stream in ("LOGS_0", "LOGS_1")
        for each in await consumers_of(js, stream)
    }


async def test_on_external_streams_its_own_consumers_go_and_no_others(js: JetStream) -> None:
    """Else they would hold back, for ever, what the owner's streams may trim."""
    removed = await remove(js, pipeline("audit", AUDIT), installation="here")

    assert removed == [
        f"consumer LOGS_{number}/{name}" for number in (0, 1) for name in ("audit", "audit-new")
    ]
    assert await consumers(js) == {
        f"LOGS_{number}/{name}" for number in (0, 1) for name in ("owners", "other")
    }


async def test_a_namesake_in_another_cluster_keeps_its_consumers(js: JetStream) -> None:
    """The mark says which installation's a consumer is."""
    before = await consumers(js)

    assert await remove(js, pipeline("audit", AUDIT), installation="elsewhere") == []
    assert await consumers(js) == before


async def test_a_consumer_that_the_resource_named_before_goes_as_well(js: JetStream) -> None:
    """What it was told to make, and never to remove, is found by its mark."""
    audit = pipeline("audit", {**AUDIT, "consumers": []})

    assert len(await remove(js, audit, installation="here")) == 4
    assert not {name for name in await consumers(js) if "audit" in name}


async def test_the_owner_s_streams_wait_for_its_table_no_longer(js: JetStream) -> None:
    """How far the table was is forgotten, and another table's progress is not."""
    bucket = Bucket(js, pipeline("audit", AUDIT).names.state_bucket)
    for name in ("audit", "other"):
        await bucket.put(table_key("default", name), PROGRESS.encode())

    removed = await remove(js, pipeline("audit", AUDIT), installation="here")

    assert "progress of the table" in removed
    assert await bucket.get(table_key("default", "audit")) is None
    assert await bucket.get(table_key("default", "other")) is not None


async def test_streams_that_are_gone_already_are_no_hindrance(js: JetStream) -> None:
    """The owner may have been deleted first."""
    await remove(js, pipeline("prod", OWNER), installation="here")

    assert await remove(js, pipeline("audit", AUDIT), installation="here") == []
