"""A plan is carried out as it was printed, once, and touches nothing that is not ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from logpipeline import embedded
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.plan.apply import Report, Result, apply
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import OWNER_KEY, Config, Desired, DesiredStream, Plan
from logpipeline.plan.observe import JetStreamOff, found_stream, observe
from logpipeline.plan.trim import keys_of
from waiting import WITHIN_S

OWNER = {OWNER_KEY: "team/logs"}
MIB = 1024 * 1024
HOUR = 3600 * 10**9
AUDIT: Config = {
    "name": "audit",
    "durable_name": "audit",
    "ack_policy": "explicit",
    "metadata": OWNER,
}


@asynccontextmanager
async def connected(server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of *server*."""
    connection = Connection(NatsOptions(servers=(server.url,)))
    await connection.start(patience_s=WITHIN_S)
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of this test's server."""
    async with connected(nats_server) as js:
        yield js


def wanted(*, partitions: int = 3, consumers: tuple[Config, ...] = (), **more: Any) -> Desired:
    """What the pipeline team/logs wants; *more* goes into its streams, ``adopt`` excepted."""
    adopt = more.pop("adopt", False)
    return Desired(
        pipeline="team/logs",
        root="logs.>",
        payload_bytes=1000,
        adopt=adopt,
        streams=tuple(
            DesiredStream(
                config={
                    "name": f"LOGS_{number}",
                    "subjects": [f"logs.p{number}.>"],
                    "discard": "new",
                    "metadata": OWNER,
                    **more,
                },
                consumers=consumers,
            )
            for number in range(partitions)
        ),
    )


async def plan_of(js: JetStream, desired: Desired) -> Plan:
    """The plan that makes *desired* of what is there."""
    return make_plan(desired, await observe(js, desired))


async def reconcile(js: JetStream, desired: Desired, *, allow_data_loss: bool = False) -> Report:
    """Plan and apply."""
    return await apply(js, await plan_of(js, desired), allow_data_loss=allow_data_loss)


async def test_a_plan_that_was_applied_leaves_nothing_to_do(js: JetStream) -> None:
    """Applied on an empty server, everything is made, and the next plan is empty."""
    desired = wanted(consumers=(AUDIT,), max_bytes=MIB)

    report = await reconcile(js, desired)

    assert report.is_complete
    assert len(report.outcomes) == 6
    assert (await plan_of(js, desired)).is_empty


async def test_a_plan_may_be_applied_again_after_any_interruption(js: JetStream) -> None:
    """What an interrupted run has done already counts as done, not as somebody else's doing."""
    plan = await plan_of(js, wanted(consumers=(AUDIT,)))
    await apply(js, plan, allow_data_loss=False)

    again = await apply(js, plan, allow_data_loss=False)

    assert again.is_complete


async def test_a_change_behind_the_plans_back_stops_it(js: JetStream) -> None:
    """What somebody changed after the plan was printed is not overwritten."""
    await reconcile(js, wanted(partitions=2))
    plan = await plan_of(js, wanted(partitions=2, compression="s2"))
    found = await found_stream(js, "LOGS_0")
    assert found is not None
    await js.call("STREAM.UPDATE.LOGS_0", {**found.config, "max_msgs": 7})

    report = await apply(js, plan, allow_data_loss=False)

    assert [outcome.result for outcome in report.outcomes] == [
        Result.CHANGED_MEANWHILE,
        Result.NOT_TRIED,
    ]
    assert await _field(js, "LOGS_0", "max_msgs") == 7


# Fields that are held back, with the value that a stream has first and the one that is asked for.
HELD: dict[str, tuple[Any, Any]] = {
    "max_age": (24 * HOUR, 2 * HOUR),
    "max_msgs": (-1, 1),
    "max_bytes": (-1, 1000),
    "max_msgs_per_subject": (-1, 1),
    "retention": ("limits", "interest"),
    "discard": ("new", "old"),
    "storage": ("file", "memory"),
    "deny_delete": (True, False),
}
# Harmless fields: each must wait with the others.
HARMLESS: dict[str, tuple[Any, Any]] = {
    "compression": ("none", "s2"),
    "description": ("", "lines"),
    "duplicate_window": (60 * 10**9, 30 * 10**9),
}


@pytest.mark.parametrize("pair", [*combinations(HELD, 2), *product(HELD, HARMLESS)], ids="+".join)
async def test_a_change_is_applied_as_a_whole_or_not_at_all(
    js: JetStream, pair: tuple[str, str]
) -> None:
    """While one of two fields is held back, neither is changed, in no stream and no consumer."""
    fields = HELD | HARMLESS
    base = {} if "discard" in pair else {"discard": "old"}
    was, becomes = (base | {field: fields[field][new] for field in pair} for new in (0, 1))
    await reconcile(js, wanted(partitions=2, consumers=(AUDIT,), **was))
    before = await _configs(js)

    changed = {**AUDIT, "description": "audits"}
    report = await reconcile(js, wanted(partitions=2, consumers=(changed,), **becomes))

    assert await _configs(js) == before
    assert not report.is_complete
    assert {outcome.result for outcome in report.outcomes} == {Result.HELD_BACK}
    assert set(pair) <= {change.field for o in report.outcomes for change in o.held}


async def _configs(js: JetStream) -> list[Any]:
    streams = [await found_stream(js, f"LOGS_{number}") for number in range(2)]
    consumers = [await js.call(f"CONSUMER.INFO.LOGS_{number}.audit") for number in range(2)]
    return [
        *(found.config for found in streams if found is not None),
        *(info["config"] for info in consumers),
    ]


async def test_a_missing_stream_is_created_while_a_change_is_held_back(js: JetStream) -> None:
    """Lines need their stream; only changes of what is there wait for a person."""
    await reconcile(js, wanted(partitions=2))
    await js.call("STREAM.DELETE.LOGS_1")

    report = await reconcile(js, wanted(partitions=2, max_msgs_per_subject=1))

    assert [o.result for o in report.outcomes] == [Result.HELD_BACK, Result.DONE]
    assert await found_stream(js, "LOGS_1") is not None


async def test_the_first_refusal_ends_it_and_says_what_to_do(js: JetStream) -> None:
    """A refusal that no plan foresees is told with advice; what comes after is not tried."""
    report = await reconcile(js, wanted(partitions=2, max_bytes=10**15))

    assert [outcome.result for outcome in report.outcomes] == [Result.REFUSED, Result.NOT_TRIED]
    assert "spec.stream.maxBytes" in report.outcomes[0].detail


async def test_a_strangers_stream_stays_as_it_is(js: JetStream) -> None:
    """A stream of our name that we did not make is not touched; the others are made."""
    theirs = {"name": "LOGS_0", "subjects": ["logs.p0.>"], "max_msgs": 5}
    await js.call("STREAM.CREATE.LOGS_0", theirs)
    before = await found_stream(js, "LOGS_0")

    report = await reconcile(js, wanted(partitions=2, consumers=(AUDIT,)), allow_data_loss=True)

    assert [outcome.result for outcome in report.outcomes][:2] == [Result.HELD_BACK, Result.DONE]
    assert "spec.stream.adopt" in report.outcomes[0].detail
    after = await found_stream(js, "LOGS_0")
    assert before is not None
    assert after is not None
    assert after.config == before.config
    assert (await js.call("CONSUMER.NAMES.LOGS_0"))["total"] == 0


async def test_a_stream_is_adopted_when_the_user_says_so(js: JetStream) -> None:
    """With adopt, a found stream becomes ours, and keeps its messages."""
    await js.call("STREAM.CREATE.LOGS_0", {"name": "LOGS_0", "subjects": ["logs.p0.>"]})
    await js.publish("logs.p0.web", b"line")

    report = await reconcile(js, wanted(partitions=1, adopt=True))

    assert report.is_complete
    found = await found_stream(js, "LOGS_0")
    assert found is not None
    assert found.config["metadata"][OWNER_KEY] == "team/logs"
    assert found.state["messages"] == 1
    assert (await plan_of(js, wanted(partitions=1))).is_empty


async def test_subjects_that_somebody_else_stores_stop_everything(js: JetStream) -> None:
    """Nothing is made while another stream takes our lines; the plan names it."""
    await js.call("STREAM.CREATE.EVERYTHING", {"name": "EVERYTHING", "subjects": ["logs.*.web"]})

    plan = await plan_of(js, wanted())
    report = await apply(js, plan, allow_data_loss=False)

    assert "EVERYTHING" in plan.blocking[0].message
    assert {outcome.result for outcome in report.outcomes} == {Result.NOT_TRIED}
    assert await found_stream(js, "LOGS_0") is None


async def test_streams_of_fewer_partitions_are_kept_and_named(js: JetStream) -> None:
    """Streams that the pipeline no longer wants are never deleted, whatever is allowed."""
    await reconcile(js, wanted(partitions=3))

    plan = await plan_of(js, wanted(partitions=1))
    await apply(js, plan, allow_data_loss=True)

    assert plan.unwanted == ("LOGS_1", "LOGS_2")
    assert await found_stream(js, "LOGS_2") is not None


async def test_a_consumer_that_is_not_wanted_goes_only_when_loss_is_allowed(js: JetStream) -> None:
    """Its position is the user's; one that somebody else made is never touched."""
    await reconcile(js, wanted(partitions=1, consumers=(AUDIT,)))
    await js.consumer_create("LOGS_0", {"name": "theirs", "durable_name": "theirs"})

    held = await reconcile(js, wanted(partitions=1))
    names_then = (await js.call("CONSUMER.NAMES.LOGS_0"))["consumers"]
    await reconcile(js, wanted(partitions=1), allow_data_loss=True)

    assert held.outcomes[0].result is Result.HELD_BACK
    assert names_then == ["audit", "theirs"]
    assert (await js.call("CONSUMER.NAMES.LOGS_0"))["consumers"] == ["theirs"]


class LosesAnswers(JetStream):
    """JetStream that carries out each change and then loses its first answer."""

    def __init__(self, js: JetStream) -> None:
        super().__init__(js.connection)
        self.lost: list[str] = []

    async def call(
        self, request: str, body: dict[str, Any] | None = None, *, timeout_s: float = 5.0
    ) -> Any:
        answer = await super().call(request, body, timeout_s=timeout_s)
        is_change = ".CREATE." in request or ".UPDATE." in request
        if is_change and request not in self.lost:
            self.lost.append(request)
            raise OutcomeUnknown("the answer was lost")
        return answer


async def test_an_answer_that_is_lost_is_looked_up(js: JetStream) -> None:
    """A change whose outcome is unknown is looked at, and counts as done when it was made."""
    losing = LosesAnswers(js)

    report = await reconcile(losing, wanted(partitions=2, consumers=(AUDIT,)))

    assert report.is_complete
    assert len(losing.lost) == 4
    assert (await plan_of(js, wanted(partitions=2, consumers=(AUDIT,)))).is_empty


async def test_a_server_that_restarts_meanwhile_is_waited_for(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """When the server goes away under a request, the plan goes on as soon as it is back."""
    plan = await plan_of(js, wanted(partitions=2))
    nats_server.suspend()
    applying = asyncio.create_task(apply(js, plan, allow_data_loss=False))
    await asyncio.sleep(0)
    nats_server.kill()
    await nats_server.start()

    report = await applying

    assert report.is_complete
    assert (await plan_of(js, wanted(partitions=2))).is_empty


async def test_a_server_without_jetstream_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of time-outs, the user reads that JetStream is off, and how to enable it."""
    _configure(monkeypatch, {"jetstream": None})
    async with EmbeddedServer(tmp_path / "off") as server, connected(server) as js:
        with pytest.raises(JetStreamOff, match="enable it"):
            await observe(js, wanted())


async def test_limits_of_the_account_are_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams, storage and sizes beyond the account's limits block, each with what to do."""
    limits = {
        "max_file": 8 * MIB,
        "max_mem": 0,
        "max_streams": 2,
        "store_max_stream_bytes": 2 * MIB,
    }
    _configure(monkeypatch, _account({**limits, "max_bytes_required": True}))
    async with EmbeddedServer(tmp_path / "limited") as server, connected(server) as js:
        plan = await plan_of(js, wanted(partitions=3, max_bytes=3 * MIB))
        report = await apply(js, plan, allow_data_loss=False)
        unlimited = await plan_of(js, wanted(partitions=1))
        fits = await reconcile(js, wanted(partitions=2, max_bytes=2 * MIB))

        found = [problem.id for problem in plan.blocking]
        assert found == ["too-many-streams", "too-little-storage", "stream-too-large"]
        assert {outcome.result for outcome in report.outcomes} == {Result.NOT_TRIED}
        assert [problem.id for problem in unlimited.blocking] == ["stream-too-large"]
        assert fits.is_complete


async def test_an_account_without_jetstream_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has JetStream, our account has not: the user reads which of the two it is."""
    _configure(monkeypatch, _account(None))
    async with EmbeddedServer(tmp_path / "none") as server, connected(server) as js:
        with pytest.raises(JetStreamOff, match="account"):
            await observe(js, wanted())
        with pytest.raises(ApiError):
            await keys_of(js, Bucket(js, "LOGS_state"))


def _account(jetstream: dict[str, Any] | None) -> dict[str, Any]:
    account: dict[str, Any] = {"users": [{"user": "demo", "password": "demo"}]}
    if jetstream is not None:
        account["jetstream"] = jetstream
    return {"accounts": {"LIMITED": account}, "no_auth_user": "demo"}


def _configure(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    usual = embedded.render_config

    def render(*args: Any) -> str:
        config = {**json.loads(usual(*args)), **changes}
        return json.dumps({key: value for key, value in config.items() if value is not None})

    monkeypatch.setattr(embedded, "render_config", render)


async def _field(js: JetStream, stream: str, field: str) -> Any:
    found = await found_stream(js, stream)
    assert found is not None
    return found.config[field]
