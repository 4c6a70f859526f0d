"""Streams that another pipeline owns: they are used as they are, by groups that do not meet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from components.external_pipelines import pipeline
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.assignment import GroupTaken, ensure_assigned, forget_group
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import apply, plan_pipeline
from logpipeline.plan.trim import groups_of
from logpipeline.records import EpochRecord, StreamPosition, assignment_key, epoch_key
from waiting import WITHIN_S

OWNER: dict[str, Any] = {"subject": "logs", "partitions": 2, "stream": {"name": "LOGS"}}
AUDIT: dict[str, Any] = {
    **OWNER,
    "stream": {"name": "LOGS", "external": True},
    "collectors": {"group": "audit"},
}


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream with the owner's streams."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    await apply(js, await plan_pipeline(js, pipeline("prod", OWNER)), allow_data_loss=False)
    yield js
    await connection.close()


async def configs(js: JetStream) -> dict[str, Any]:
    """What the server has of each stream."""
    names = ("LOGS_0", "LOGS_1", "KV_LOGS_state", "LOGS_snapshots", "LOGS_dead")
    found = {name: await js.stream_info(name) for name in names}
    return {name: info and info["config"] for name, info in found.items()}


async def keys(js: JetStream) -> set[str]:
    """The keys of the state bucket."""
    answer = await js.call("STREAM.INFO.KV_LOGS_state", {"subjects_filter": ">"})
    return {key.removeprefix("$KV.LOGS_state.") for key in answer["state"].get("subjects") or {}}


async def test_nothing_of_them_is_changed(js: JetStream) -> None:
    """Not even where the two resources say different things of the streams."""
    before = await configs(js)
    stream = {**AUDIT["stream"], "maxAge": "3h", "replicas": 3, "adopt": True}
    plan = await plan_pipeline(js, pipeline("audit", {**AUDIT, "stream": stream}))
    report = await apply(js, plan, allow_data_loss=True)

    assert (plan.problems, plan.steps, plan.unwanted) == ((), (), ())
    assert report.is_complete
    assert await configs(js) == before


@pytest.mark.parametrize(
    ("change", "problem", "advice"),
    [
        ({"partitions": 3}, "stream-missing", "LOGS_2 is not there"),
        ({"partitions": 1}, "stream-differs", "spec.partitions"),
        ({"subject": "others"}, "stream-differs", "spec.subject"),
        ({"stream": {"name": "NONE", "external": True}}, "stream-missing", "spec.stream.name"),
    ],
)
async def test_what_does_not_fit_is_told_before_anything_is_read(
    js: JetStream, change: dict[str, Any], problem: str, advice: str
) -> None:
    """A host's lines would be looked for in another partition than they are in."""
    plan = await plan_pipeline(js, pipeline("audit", {**AUDIT, **change}))
    (found,) = plan.blocking

    assert found.id == problem
    assert advice in found.message
    assert not plan.steps


async def test_consumers_of_its_own_are_made_on_them(js: JetStream) -> None:
    """They bear its own mark, so that the owner leaves them alone."""
    audit = pipeline("audit", {**AUDIT, "consumers": [{"name": "audit"}]})
    report = await apply(js, await plan_pipeline(js, audit), allow_data_loss=False)
    owners = await plan_pipeline(js, pipeline("prod", OWNER))

    assert report.is_complete
    assert [outcome.step.asset for outcome in report.outcomes] == [
        "consumer LOGS_0/audit", "consumer LOGS_1/audit",
    ]  # fmt: skip
    assert owners.is_empty


async def test_a_group_belongs_to_one_pipeline(js: JetStream) -> None:
    """Two that share its partitions out would move them back and forth for ever."""
    bucket = Bucket(js, "LOGS_state")
    audit, other = pipeline("audit", AUDIT), pipeline("other", AUDIT)
    adopting = {**AUDIT, "stream": {**AUDIT["stream"], "adopt": True}}
    await ensure_assigned(bucket, pipeline("prod", OWNER), ["prod-0"], installation="a")
    first = await ensure_assigned(bucket, audit, ["audit-0"], installation="a")

    with pytest.raises(GroupTaken, match=r"default/audit: .* another spec\.collectors\.group"):
        await ensure_assigned(bucket, other, ["other-0"], installation="a")
    with pytest.raises(GroupTaken):
        await ensure_assigned(bucket, audit, ["audit-0"], installation="b")
    assert await ensure_assigned(bucket, audit, ["audit-0"], installation="a") == first
    taken = await ensure_assigned(
        bucket, pipeline("other", adopting), ["other-0"], installation="a"
    )
    assert (taken.generation, taken.pipeline) == (first.generation + 1, "default/other@a")


async def test_an_assignment_whose_key_was_lost_is_newer_than_all_before(js: JetStream) -> None:
    """Records of partitions hold the number under which they were taken, and give way to none that
    is lower.
    """
    bucket, prod = Bucket(js, "LOGS_state"), pipeline("prod", OWNER)
    for count in range(1, 6):
        former = await ensure_assigned(bucket, prod, [f"prod-{each}" for each in range(count)])
    await bucket.erase(assignment_key("main"))
    made = await ensure_assigned(bucket, prod, ["prod-0"])

    assert made.generation > former.generation


async def test_a_group_that_is_forgotten_holds_nothing_any_more(js: JetStream) -> None:
    """Else a full stream would be kept for who never comes back; the other group stays."""
    bucket = Bucket(js, "LOGS_state")
    audit, prod = pipeline("audit", AUDIT), pipeline("prod", OWNER)
    for each, group in ((audit, "audit"), (prod, "main")):
        await ensure_assigned(bucket, each, [f"{each.name}-0"])
        record = EpochRecord(
            epoch=1, owner="", incarnation="", assignment=1, position=StreamPosition("", 0, 0)
        )
        await bucket.swap(epoch_key(group, 0), record.encode(), revision=0)
        await bucket.put(f"member.{group}.{each.name}-0", b"x")
        await js.publish(f"_lps.logs.{group}.p0", b"snapshot")
    strangers = await forget_group(js, pipeline("other", AUDIT))
    before = groups_of(await keys(js))
    forgotten = await forget_group(js, audit)
    left = await js.call("STREAM.INFO.LOGS_snapshots", {"subjects_filter": ">"})

    assert (strangers, before) == (False, {"audit", "main"})
    assert forgotten
    assert await keys(js) == {assignment_key("main"), epoch_key("main", 0), "member.main.prod-0"}
    assert list(left["state"]["subjects"]) == ["_lps.logs.main.p0"]
    assert not await forget_group(js, audit)
