"""How the operator shares partitions out while something is wrong with the pipeline's JetStream."""

from __future__ import annotations

from typing import Any

from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.jetstream import Permission, reconcile
from logpipeline_operator.status import JetStreamFacts
from waiting import WITHIN_S

# More than a server takes by default.
TOO_MUCH = {"maxBytes": "8Mi"}


def pipeline(name: str = "prod", **spec: Any) -> LogPipeline:
    """A pipeline with two partitions on a user's own server."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": name, "namespace": "logging"},
            "spec": {"partitions": 2, "collectors": {"replicas": 2}, **spec},
        }
    )


def owners(facts: JetStreamFacts) -> list[str]:
    """The members of the assignment."""
    return [name for name, _ in facts.assignment.members] if facts.assignment else []


async def test_partitions_of_a_collector_that_is_gone_move_though_the_plan_is_blocked(
    nats_server: EmbeddedServer,
) -> None:
    """Those that were shared out before; what never was waits until the plan can be applied."""
    may, both = Permission(may_write=True), ["prod-collector-0", "prod-collector-1"]
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    before = await reconcile(js, pipeline(), may, lambda assigned: both)
    blocked = await reconcile(js, pipeline(batch=TOO_MUCH), may, lambda assigned: both[:1])
    other = pipeline("new", batch=TOO_MUCH)
    fresh = await reconcile(js, other, may, lambda assigned: both)
    await connection.close()

    assert owners(before) == both
    assert [problem.id for problem in blocked.plan.blocking] == ["payload-too-small"]
    assert owners(blocked) == both[:1]
    assert fresh.plan.blocking
    assert owners(fresh) == []
