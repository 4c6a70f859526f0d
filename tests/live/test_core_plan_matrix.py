"""What the plan says of a changed field is what the server does: a real one tries each row."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import ApiError, JetStream, time_ns_of
from logpipeline.plan.apply import Result, apply
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import OWNER_KEY, Desired, DesiredStream, Kind
from logpipeline.plan.observe import found_stream, observe
from waiting import WITHIN_S, eventually

SECOND = 1_000_000_000
MINE = {"metadata": {OWNER_KEY: "test/matrix"}}
MESSAGES = 10

Config = dict[str, Any]


class Row(NamedTuple):
    """A stream made with *base*, perhaps changed to *between*, then planned to become *change*."""

    base: Config
    change: Config
    between: Config | None = None


STREAM_REFUSED = [
    Row({}, {"storage": "memory"}),
    Row({}, {"retention": "workqueue"}),
    Row({"retention": "interest"}, {"retention": "workqueue"}),
    Row({"retention": "workqueue"}, {"retention": "limits"}),
    Row({"retention": "workqueue"}, {"retention": "interest"}),
    Row({}, {"mirror": {"name": "OTHER"}}),
    Row({"mirror": {"name": "OTHER"}, "subjects": []}, {"mirror": {"name": "ANOTHER"}}),
    Row({}, {"sealed": False}, between={"sealed": True}),
    Row({"deny_delete": True}, {"deny_delete": False}),
    Row({"deny_purge": True}, {"deny_purge": False}),
    Row({"allow_msg_ttl": True}, {"allow_msg_ttl": False}),
    Row({"allow_msg_schedules": True, "allow_rollup_hdrs": True}, {"allow_msg_schedules": False}),
    Row({}, {"allow_msg_counter": True}),
    Row({"allow_msg_counter": True}, {"allow_msg_counter": False}),
    Row({}, {"persist_mode": "async"}),
    Row({"persist_mode": "async"}, {"persist_mode": "default"}),
    Row({}, {"max_age": SECOND, "duplicate_window": 2 * SECOND}),
    Row({"max_age": 10 * SECOND, "duplicate_window": SECOND}, {"duplicate_window": 11 * SECOND}),
    Row({}, {"num_replicas": 3}),
]

STREAM_DELETES = [
    Row({}, {"max_msgs": 3}),
    Row({"max_msgs": 20}, {"max_msgs": 3}),
    Row({}, {"max_bytes": 300}),
    Row({"max_bytes": 5000}, {"max_bytes": 300}),
    Row({}, {"max_age": SECOND // 5, "duplicate_window": SECOND // 10}),
    Row({"discard": "new"}, {"max_age": SECOND // 5, "duplicate_window": SECOND // 10}),
    Row({}, {"max_msgs_per_subject": 1}),
    Row({"discard": "new", "max_msgs_per_subject": 9}, {"max_msgs_per_subject": 1}),
    Row({}, {"retention": "interest"}),
    Row({"discard": "new"}, {"discard": "old"}, between={"max_msgs": 3}),
    Row({"discard": "new"}, {"discard": "old"}, between={"max_bytes": 300}),
    Row({"discard": "new"}, {"discard": "old", "max_msgs": 3}),
]

STREAM_IN_PLACE = [
    Row({}, {"subjects": ["{name}.0"]}),
    Row({}, {"subjects": ["{name}.*", "{name}.more.*"]}),
    Row({"retention": "interest"}, {"retention": "limits"}),
    Row({"max_msgs": 20}, {"max_msgs": 30}),
    Row({"max_msgs": 20}, {"max_msgs": -1}),
    Row({"max_bytes": 5000}, {"max_bytes": 9000}),
    Row({"max_age": 3600 * SECOND}, {"max_age": 7200 * SECOND}),
    Row({"max_msgs_per_subject": 9}, {"max_msgs_per_subject": 12}),
    Row({"discard": "new"}, {"max_msgs": 3}),
    Row({"discard": "new"}, {"max_bytes": 300}),
    Row({"discard": "old"}, {"discard": "new", "max_msgs": 3, "max_bytes": 300}),
    Row({"storage": "memory", "discard": "new"}, {"max_msgs": 3}),
    Row({"discard": "old"}, {"discard": "new"}),
    Row({}, {"max_msg_size": 10}),
    Row({}, {"max_consumers": 5}),
    Row({"max_consumers": 5}, {"max_consumers": 2000}),
    Row({}, {"duplicate_window": SECOND}),
    Row({}, {"placement": {"tags": ["ssd"]}}),
    Row({}, {"compression": "s2"}),
    Row({"compression": "s2"}, {"compression": "none"}),
    Row({"allow_direct": True}, {"allow_direct": False}),
    Row({}, {"allow_direct": True, "mirror_direct": True}),
    Row({}, {"deny_delete": True}),
    Row({}, {"deny_purge": True}),
    Row({}, {"allow_rollup_hdrs": True}),
    Row({"allow_rollup_hdrs": True}, {"allow_rollup_hdrs": False}),
    Row({}, {"allow_msg_ttl": True}),
    Row({}, {"allow_msg_schedules": True}),
    Row({"allow_atomic": True}, {"allow_atomic": False}),
    Row({"allow_batched": True}, {"allow_batched": False}),
    Row({}, {"description": "lines of logs"}),
    Row({}, {"metadata": {**MINE["metadata"], "team": "logs"}}),
    Row({"metadata": {**MINE["metadata"], "team": "logs"}}, MINE),
    Row({}, {"republish": {"src": "{name}.>", "dest": "copy.{name}.>"}}),
    Row({}, {"subject_transform": {"src": "{name}.>", "dest": "to.{name}.>"}}),
    Row({}, {"consumer_limits": {"max_ack_pending": 10}}),
    Row({}, {"sources": [{"name": "OTHER"}]}),
    Row({"discard": "new", "max_msgs_per_subject": 9}, {"discard_new_per_subject": True}),
    Row({}, {"no_ack": True}),
    Row(
        {"allow_msg_ttl": True, "allow_rollup_hdrs": True},
        {"subject_delete_marker_ttl": 60 * SECOND},
    ),
]

PULL: Config = {"ack_policy": "explicit"}
PUSH: Config = {"ack_policy": "none", "deliver_subject": "out.{name}"}
BEATS: Config = {**PUSH, "idle_heartbeat": 5 * SECOND}

CONSUMER_REFUSED = [
    Row(PULL, {"deliver_policy": "new"}),
    Row(PULL, {"deliver_policy": "by_start_sequence", "opt_start_seq": 3}),
    Row({**PULL, "deliver_policy": "by_start_sequence", "opt_start_seq": 3}, {"opt_start_seq": 4}),
    Row(
        {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T00:00:00Z"},
        {"opt_start_time": "2026-01-01T01:00:00Z"},
    ),
    Row(PULL, {"ack_policy": "all"}),
    Row(PULL, {"ack_policy": "none"}),
    Row(PULL, {"replay_policy": "original"}),
    Row(PULL, {"max_waiting": 5}),
    Row(PULL, {"mem_storage": True}),
    Row(PULL, {"num_replicas": 3}),
    Row(PULL, {"deliver_subject": "out.{name}", "max_waiting": 0}),
    Row({**PUSH}, {"deliver_subject": ""}),
    Row(PUSH, {"idle_heartbeat": 5 * SECOND}),
    Row(BEATS, {"idle_heartbeat": 6 * SECOND}),
    Row(BEATS, {"flow_control": True}),
]

CONSUMER_IN_PLACE = [
    Row(PULL, {"ack_wait": 60 * SECOND}),
    Row(PULL, {"max_deliver": 5}),
    Row({**PULL, "max_deliver": 5}, {"max_deliver": -1}),
    Row({**PULL, "max_deliver": 3}, {"backoff": [SECOND, 2 * SECOND]}),
    Row({**PULL, "max_deliver": 3, "backoff": [SECOND, 2 * SECOND]}, {"backoff": []}),
    Row(PULL, {"max_ack_pending": 5}),
    Row(PULL, {"filter_subject": "{stream}.1"}),
    Row({**PULL, "filter_subject": "{stream}.1"}, {"filter_subject": "{stream}.*"}),
    Row(PULL, {"filter_subjects": ["{stream}.1", "{stream}.0"]}),
    Row(PULL, {"headers_only": True}),
    Row({**PULL, "headers_only": True}, {"headers_only": False}),
    Row(PULL, {"max_batch": 5, "max_expires": 5 * SECOND, "max_bytes": 1000}),
    Row(PULL, {"inactive_threshold": 60 * SECOND}),
    Row({**PULL, "inactive_threshold": 60 * SECOND}, {"inactive_threshold": 0}),
    Row(PULL, {"num_replicas": 1}),
    Row(PULL, {"description": "audit", "sample_freq": "50%"}),
    Row(PULL, {"metadata": {**MINE["metadata"], "team": "audit"}}),
    Row(PULL, {"priority_policy": "overflow", "priority_groups": ["a"]}),
    Row(PUSH, {"deliver_subject": "out.elsewhere.{name}"}),
    Row(PUSH, {"deliver_group": "readers"}),
    Row({**PUSH, "deliver_group": "readers"}, {"deliver_group": "others"}),
    Row(PUSH, {"rate_limit_bps": 10_000}),
]


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream of this test's server, with a stream for the others to mirror."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    for name in ("OTHER", "ANOTHER"):
        await js.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()]})
    yield js
    await connection.close()


async def test_what_is_called_refused_of_a_stream_is_refused(js: JetStream) -> None:
    """The server refuses what the plan calls so, and applying never even sends it."""
    for number, row in enumerate(STREAM_REFUSED):
        desired = await _stream(js, f"S{number}", row)
        plan = make_plan(desired, await observe(js, desired))

        outcome = (await apply(js, plan, allow_data_loss=True)).outcomes[0]

        assert plan.steps[0].kind is Kind.REFUSED, (row, plan.steps)
        assert outcome.result in (Result.HELD_BACK, Result.NOT_TRIED), (row, outcome)
        with pytest.raises(ApiError):
            await js.call(f"STREAM.UPDATE.S{number}", dict(desired.streams[0].config))


async def test_what_is_called_data_deleting_deletes_data_and_only_when_allowed(
    js: JetStream,
) -> None:
    """Held back, such a change deletes nothing; allowed, it deletes, and no more than was told."""
    for number, row in enumerate(STREAM_DELETES):
        name = f"S{number}"
        desired = await _stream(js, name, row)
        if row.change.get("max_age"):
            aged: bool = await eventually(partial(_is_older, js, name, SECOND // 4))
            assert aged
        plan = make_plan(desired, await observe(js, desired))
        told = max(change.loss.messages for change in plan.steps[0].changes if change.loss)

        held = (await apply(js, plan, allow_data_loss=False)).outcomes[0]
        kept = await _messages(js, name)
        plan = make_plan(desired, await observe(js, desired))
        done = (await apply(js, plan, allow_data_loss=True)).outcomes[0]

        assert plan.steps[0].kind is Kind.DELETES_DATA, (row, plan.steps)
        assert held.held, row
        assert kept == MESSAGES, row
        assert (done.result, done.held) == (Result.DONE, ()), (row, done)
        fewer: bool = await eventually(partial(_is_fewer, js, name, MESSAGES), what=str(row))
        assert fewer
        assert await _messages(js, name) >= MESSAGES - told, (row, told)


async def test_what_is_called_in_place_takes_effect_and_deletes_nothing(js: JetStream) -> None:
    """Such a change is made, every message is still there, and the next plan is empty."""
    for number, row in enumerate(STREAM_IN_PLACE):
        name = f"S{number}"
        desired = await _stream(js, name, row)
        held = await _messages(js, name)
        plan = make_plan(desired, await observe(js, desired))

        outcome = (await apply(js, plan, allow_data_loss=False)).outcomes[0]

        assert plan.steps[0].kind is Kind.IN_PLACE, (row, plan.steps)
        assert (outcome.result, outcome.held) == (Result.DONE, ()), (row, outcome)
        assert make_plan(desired, await observe(js, desired)).is_empty, row
        assert await _messages(js, name) == held, row


async def test_the_limits_that_a_stream_outgrew_delete_nothing_after_a_restart(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """A stream that discards new messages keeps the old ones beyond a lowered limit for good."""
    desired = await _stream(js, "KEPT", Row({"discard": "new"}, {"max_msgs": 3, "max_bytes": 300}))
    await apply(js, make_plan(desired, await observe(js, desired)), allow_data_loss=False)

    await nats_server.stop()
    await nats_server.start()
    await js.connection.wait_connected()

    assert await _messages(js, "KEPT") == MESSAGES


async def test_what_is_accepted_without_effect_is_no_change(js: JetStream) -> None:
    """A first sequence, which the server takes and ignores once the stream exists, is no drift."""
    desired = await _stream(js, "FIRST", Row({}, {}))
    await js.call("STREAM.UPDATE.FIRST", {**desired.streams[0].config, "first_seq": 100})

    assert make_plan(desired, await observe(js, desired)).is_empty
    found = await found_stream(js, "FIRST")
    assert found is not None
    assert found.config["first_seq"] == 100
    assert found.state["first_seq"] == 1


async def test_what_is_called_refused_of_a_consumer_is_refused(js: JetStream) -> None:
    """The server refuses what the plan calls so, and the consumer stays as it is."""
    for number, row in enumerate(CONSUMER_REFUSED):
        desired = await _consumer(js, f"S{number}", row)
        plan = make_plan(desired, await observe(js, desired))

        outcome = (await apply(js, plan, allow_data_loss=True)).outcomes[0]

        assert plan.steps[0].kind is Kind.REFUSED, (row, plan.steps)
        # What comes along with a refused change may be taken by itself.
        assert outcome.held, (row, outcome)
        config = {k: v for k, v in desired.streams[0].consumers[0].items() if v != ""}
        with pytest.raises(ApiError):
            await js.consumer_create(f"S{number}", config, action="update")


async def test_what_is_called_in_place_of_a_consumer_takes_effect(js: JetStream) -> None:
    """Such a change is made, and the next plan is empty."""
    for number, row in enumerate(CONSUMER_IN_PLACE):
        desired = await _consumer(js, f"S{number}", row)
        plan = make_plan(desired, await observe(js, desired))

        outcome = (await apply(js, plan, allow_data_loss=False)).outcomes[0]

        assert plan.steps[0].kind is Kind.IN_PLACE, (row, plan.steps)
        assert (outcome.result, outcome.held) == (Result.DONE, ()), (row, outcome)
        assert make_plan(desired, await observe(js, desired)).is_empty, row


async def test_a_wider_filter_does_not_bring_older_messages(js: JetStream) -> None:
    """What the note of a widened filter says: of the new subject, only new messages come."""
    came: list[bytes] = []
    await js.connection.listen("came", lambda message: came.append(message.subject))
    narrow = {"name": "c", "durable_name": "c", "filter_subject": "S.1", "deliver_subject": "came"}
    await _stream(js, "S", Row({}, {}))
    await js.consumer_create("S", narrow, action="create")
    await eventually(lambda: came == [b"S.1"] * (MESSAGES // 2))

    await js.consumer_create("S", {**narrow, "filter_subject": "S.*"}, action="update")
    await js.publish("S.0", b"new")

    await eventually(lambda: b"S.0" in came)
    assert came == [b"S.1"] * (MESSAGES // 2) + [b"S.0"]


async def _stream(js: JetStream, name: str, row: Row) -> Desired:
    base = _named({"name": name, "subjects": [f"{name}.*"], **MINE, **row.base}, name)
    await js.call(f"STREAM.CREATE.{name}", base)
    if base.get("subjects"):
        for number in range(MESSAGES):
            await _publish(js, f"{name}.{number % 2}", base)
    if row.between:
        base |= _named(row.between, name)
        await js.call(f"STREAM.UPDATE.{name}", base)
    wanted = DesiredStream(config={**base, **_named(row.change, name)})
    return _desired(name, wanted)


async def _consumer(js: JetStream, stream: str, row: Row) -> Desired:
    config = {"name": stream, "subjects": [f"{stream}.*"], **MINE}
    await js.call(f"STREAM.CREATE.{stream}", config)
    base = _named({"name": "c", "durable_name": "c", **MINE, **row.base}, stream)
    await js.consumer_create(stream, base, action="create")
    consumer = {**base, **_named(row.change, stream)}
    return _desired(stream, DesiredStream(config=config, consumers=(consumer,)))


def _desired(name: str, stream: DesiredStream) -> Desired:
    return Desired(pipeline="test/matrix", root=f"{name}.>", streams=(stream,), payload_bytes=1000)


def _named(config: Config, name: str) -> Config:
    text = json.dumps(config).replace("{name}", name).replace("{stream}", name)
    return dict(json.loads(text))


async def _publish(js: JetStream, subject: str, config: Config) -> None:
    if config.get("allow_msg_counter"):
        await js.publish(subject, b"", {"Nats-Incr": "1"})
    else:
        await js.publish(subject, b"x" * 60)


async def _messages(js: JetStream, name: str) -> int:
    found = await found_stream(js, name)
    assert found is not None
    return int(found.state["messages"])


async def _is_fewer(js: JetStream, name: str, than: int) -> bool:
    return await _messages(js, name) < than


async def _is_older(js: JetStream, name: str, age_ns: int) -> bool:
    found = await found_stream(js, name)
    assert found is not None
    return time_ns_of(found.now) - time_ns_of(found.state["last_ts"]) > age_ns
