"""Full streams are trimmed of what every group has, whatever else is wrong with their pipeline:
else shippers would wait for room, and what waits on a node is lost when its files are rotated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api_server.recording_proxy import Asked, Refuse
from api_server.states import NAME
from api_server.world import FORMER, World
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import time_ns_of
from logpipeline.records import EpochRecord, StreamPosition, epoch_key
from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.cluster.client import ClusterError
from logpipeline_operator.cluster.kinds import kind
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

CAPACITY = 20
SPEC: dict[str, Any] = {**FORMER, "consumers": [], "stream": {"maxMsgs": CAPACITY}}


async def change(here: World, **spec: Any) -> None:
    """Change some of the pipeline's fields."""
    await here.kube.merge(kind("LogPipeline"), here.namespace, NAME, {"spec": spec})


async def pause(here: World) -> None:
    """Set the annotation that pauses it."""
    annotations = {"logpipeline.dev/paused": "true"}
    metadata = {"metadata": {"annotations": annotations}}
    await here.kube.merge(kind("LogPipeline"), here.namespace, NAME, metadata)
    await change(here, shippers={"rescan": "7s"})


async def unmanage(here: World) -> None:
    """Leave it to its user."""
    await change(here, managementState="Unmanaged", shippers={"rescan": "7s"})


async def ask_too_much(here: World) -> None:
    """Ask for messages that the server does not take."""
    await change(here, batch={"maxBytes": "8Mi"})


async def forbid(here: World) -> None:
    """Have Kubernetes refuse to list some of its objects."""

    def judge(asked: Asked) -> Refuse | None:
        is_list = asked.method == "GET" and asked.path.endswith("/pods")
        return Refuse(403, "Forbidden") if is_list and not asked.is_watch else None

    here.proxy.judge = judge


async def forbid_a_new_operator(here: World) -> None:
    """Do so before an operator starts that has no connection to NATS yet."""
    await forbid(here)
    here.operators[-1].kill()
    here.operator("--no-lease").start()


async def miss_a_secret(here: World) -> None:
    """Name a Secret that does not exist."""
    user = {"secret": {"name": "nowhere"}, "user": "username", "password": "password"}
    await change(here, nats={"user": user})


async def use_on_one_machine(here: World) -> None:
    """Add what no cluster has, so that nothing of the resource is carried out."""
    await change(here, local={"metricsPort": 9200})


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        pytest.param(pause, "Paused", marks=pytest.mark.smoke),
        (unmanage, "Unmanaged"),
        (ask_too_much, "PayloadTooSmall"),
        (forbid, "KubernetesRefused"),
        (forbid_a_new_operator, "KubernetesRefused"),
        (miss_a_secret, "SecretMissing"),
        (use_on_one_machine, "LocalInCluster"),
    ],
)
async def test_collected_lines_make_room_whatever_else_is_wrong(
    here: World, obstacle: Callable[[World], Awaitable[None]], reason: str
) -> None:
    """The pipeline says what is wrong with it, and its full stream takes new lines again."""
    await here.apply(SPEC)
    here.operator("--no-lease").start()
    await here.settles()
    pipeline = await carried_out(here)
    await obstacle(here)
    await eventually(is_said(here, reason), what=f"the reason {reason}")
    await fill_and_collect(here, pipeline)

    async def has_room() -> bool:
        return await first_sequence(here, pipeline) > 1

    await eventually(has_room, what="room in the stream")
    assert (await here.condition("Ready"))["reason"] == reason


async def test_a_pipeline_keeps_its_group(here: World) -> None:
    """Trimming would wait for the former one for ever."""
    await here.apply(SPEC)

    with pytest.raises(ClusterError, match="full streams would wait for the former group"):
        await change(here, collectors={"group": "other"})


def is_said(here: World, reason: str) -> Callable[[], Awaitable[bool]]:
    """Whether the pipeline is not ready for this *reason*."""

    async def is_so() -> bool:
        return (await here.condition("Ready")).get("reason") == reason

    return is_so


async def carried_out(here: World) -> LogPipeline:
    """The pipeline as it is now."""
    resource = await here.resource()
    assert resource is not None
    return parse(resource)


async def fill_and_collect(here: World, pipeline: LogPipeline) -> None:
    """Fill the stream, and say that the collectors have all of it."""
    names = pipeline.names
    for number in range(CAPACITY):
        await here.js.publish(f"{names.subject}.p0.web", b"line %d" % number)
    stream = names.stream(0)
    info = await here.js.stream_info(stream)
    assert info is not None
    found = (await here.js.call(f"STREAM.MSG.GET.{stream}", {"seq": CAPACITY}))["message"]
    record = EpochRecord(
        epoch=1,
        owner="p-collector-0",
        incarnation="x",
        assignment=1,
        position=StreamPosition(info["created"], CAPACITY, time_ns_of(found["time"])),
        snapshot=1,
        snapshot_at=CAPACITY,
    )
    bucket = Bucket(here.js, names.state_bucket)
    await bucket.put(epoch_key(pipeline.spec.collectors.group, 0), record.encode())


async def first_sequence(here: World, pipeline: LogPipeline) -> int:
    """The oldest message that the stream has."""
    info = await here.js.stream_info(pipeline.names.stream(0))
    assert info is not None
    return int(info["state"]["first_seq"])
