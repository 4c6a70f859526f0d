"""JetStream's features that a pipeline does not use: what people set up beside its streams stays,
and what they set on the streams themselves is shown, and taken back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import apply
from logpipeline.plan.desired import desired
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import Desired, Plan
from logpipeline.plan.observe import account_of, observe
from logpipeline.spec import LogPipeline
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.streams import Stream
from waiting import WITHIN_S, eventually

PIPELINE = LogPipeline(
    name="logs", spec=LogPipelineSpec(subject="logs", partitions=2, stream=Stream(name="LOGS"))
)


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of a server that has the streams of `PIPELINE`."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    try:
        js = JetStream(connection)
        await apply(js, await plan_of(js), allow_data_loss=False)
        yield js
    finally:
        await connection.close()


async def wanted(js: JetStream) -> Desired:
    """What `PIPELINE` wants."""
    return desired(PIPELINE, account=await account_of(js))


async def plan_of(js: JetStream) -> Plan:
    """The plan that makes what `PIPELINE` wants of what is there."""
    found = await wanted(js)
    return make_plan(found, await observe(js, found))


async def messages_in(js: JetStream, stream: str) -> int:
    """How many messages *stream* holds."""
    info = await js.stream_info(stream)
    assert info is not None
    return int(info["state"]["messages"])


@pytest.mark.parametrize(
    "beside",
    [
        {"mirror": {"name": "LOGS_0"}},
        {"sources": [{"name": "LOGS_0"}, {"name": "LOGS_1"}]},
        {
            "sources": [
                {
                    "name": "LOGS_0",
                    "subject_transforms": [{"src": "logs.p0.>", "dest": "copy.>"}],
                }
            ]
        },
    ],
    ids=["mirror", "source", "source with another subject"],
)
async def test_streams_that_copy_ours_are_left_alone(js: JetStream, beside: dict[str, Any]) -> None:
    """They get each message, and no plan knows of them."""
    await js.call("STREAM.CREATE.COPY", {"name": "COPY", "storage": "file", **beside})
    await js.publish("logs.p0.web1", b"a line")

    await eventually(lambda: _has(js, "COPY", 1), what="the copy")
    assert (await plan_of(js)).is_empty


async def _has(js: JetStream, stream: str, count: int) -> bool:
    return await messages_in(js, stream) == count


async def test_consumers_of_others_are_left_alone(js: JetStream) -> None:
    """With whatever a LogPipeline cannot say, such as groups with priorities."""
    config = {
        "durable_name": "mine",
        "ack_policy": "explicit",
        "priority_policy": "overflow",
        "priority_groups": ["near"],
    }
    await js.call(
        "CONSUMER.DURABLE.CREATE.LOGS_0.mine", {"stream_name": "LOGS_0", "config": config}
    )

    assert (await plan_of(js)).is_empty


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("republish", {"src": "logs.p0.>", "dest": "told.>"}),
        ("subject_transform", {"src": "logs.p0.>", "dest": "logs.p0.>"}),
    ],
)
async def test_what_is_set_on_our_streams_is_shown_and_taken_back(
    js: JetStream, field: str, value: dict[str, str]
) -> None:
    """The resource says what they are."""
    info = await js.stream_info("LOGS_0")
    assert info is not None
    await js.call("STREAM.UPDATE.LOGS_0", {**info["config"], field: value})

    plan = await plan_of(js)

    changed = {change.field for step in plan.steps for change in step.changes}
    assert changed == {field}
    await apply(js, plan, allow_data_loss=False)
    assert (await plan_of(js)).is_empty
