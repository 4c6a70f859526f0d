"""The plan says everything that differs, and nothing else."""

from __future__ import annotations

from typing import Any

from logpipeline.plan.apply import config_to_send, held_changes
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import (
    INSTALLATION_KEY,
    OWNER_KEY,
    Account,
    Config,
    Desired,
    DesiredStream,
    FoundConsumer,
    FoundStream,
    Kind,
    Limits,
    Observed,
    Plan,
)

OWNER = {OWNER_KEY: "team/logs"}
STATE = {
    "messages": 100,
    "bytes": 10_000,
    "first_seq": 1,
    "last_seq": 100,
    "first_ts": "2026-01-01T00:00:00Z",
    "last_ts": "2026-01-01T10:00:00Z",
}
HOUR = 3_600_000_000_000


def stream(**fields: Any) -> Config:
    """A stream's configuration as the pipeline team/logs wants it."""
    return {"name": "LOGS_0", "subjects": ["logs.p0.>"], "metadata": OWNER, **fields}


def found(config: Config, **consumers: Config) -> FoundStream:
    """The same as the server would show it."""
    metadata = {"_nats.ver": "2.15.1", **config.get("metadata", {})}
    return FoundStream(
        config={**config, "metadata": metadata, "max_msgs": config.get("max_msgs", -1)},
        state=STATE,
        created="2026-01-01T00:00:00Z",
        now="2026-01-01T10:00:00Z",
        consumers={
            name: FoundConsumer(config=consumer, created="2026-01-01T00:00:00Z")
            for name, consumer in consumers.items()
        },
    )


def plan(
    wanted: Config, *there: FoundStream, consumers: tuple[Config, ...] = (), **more: Any
) -> Plan:
    """What is to be done for *wanted* where *there* is."""
    desired = Desired(
        pipeline="team/logs",
        root="logs.>",
        streams=(DesiredStream(config=wanted, consumers=consumers),),
        payload_bytes=1000,
        **more,
    )
    return make_plan(
        desired,
        Observed(
            server_version="2.15.1",
            max_payload_bytes=1_048_576,
            servers=1,
            account=Account(limits=Limits()),
            streams={each.name: each for each in there if each.name == wanted["name"]},
            neighbours=tuple(each for each in there if each.name != wanted["name"]),
        ),
    )


def test_what_is_missing_is_created_streams_before_consumers() -> None:
    """On an empty server, each stream and consumer is one step, in an order that works."""
    made = plan(stream(), consumers=({"name": "audit"},))

    assert [(step.asset, step.kind) for step in made.steps] == [
        ("stream LOGS_0", Kind.CREATE),
        ("consumer LOGS_0/audit", Kind.CREATE),
    ]


def test_the_servers_defaults_and_marks_are_no_difference() -> None:
    """What the server fills in, or writes below ``_nats.``, is not drift."""
    assert plan(stream(), found(stream(retention="limits", duplicate_window=120 * 10**9))).is_empty


def test_a_step_is_as_bad_as_its_worst_change() -> None:
    """One refused field makes the step refused, whatever else would be taken."""
    (step,) = plan(
        stream(storage="memory", max_msgs=5, compression="s2"), found(stream(storage="file"))
    ).steps

    assert {change.field: change.kind for change in step.changes} == {
        "storage": Kind.REFUSED,
        "max_msgs": Kind.DELETES_DATA,
        "compression": Kind.IN_PLACE,
    }
    assert step.kind is Kind.REFUSED


def test_a_change_that_deletes_tells_how_much() -> None:
    """A lowered limit names what is beyond it now, in messages and bytes."""
    (step,) = plan(stream(max_age=5 * HOUR), found(stream())).steps

    loss = step.changes[0].loss
    assert loss is not None
    assert (loss.messages, loss.bytes) == (50, 5_000)
    assert "2026-01-01T05:00:00Z" in loss.text


def test_what_is_sent_keeps_what_is_not_changed() -> None:
    """Fields that do not change keep the server's values, also those that we do not know."""
    (step,) = plan(
        stream(max_msgs=5, compression="s2"), found(stream(max_msgs=50, next_years_field=7))
    ).steps

    sent = config_to_send(step)

    assert (sent["max_msgs"], sent["compression"], sent["next_years_field"]) == (5, "s2", 7)
    assert [change.field for change in held_changes(step, allow_data_loss=False)] == ["max_msgs"]
    assert not held_changes(step, allow_data_loss=True)


def test_a_strangers_stream_is_not_touched_without_adopt() -> None:
    """A stream of our name without our mark, or with another's, waits for a word of the user."""
    for metadata in ({}, {OWNER_KEY: "other/logs"}):
        theirs = found(stream(metadata=metadata))

        (step,) = plan(stream(), theirs).steps

        assert step.kind is Kind.ADOPT_NEEDED
        assert config_to_send(plan(stream(), theirs, adopt=True).steps[0])


def test_a_strangers_stream_gets_no_consumers_of_ours() -> None:
    """Where the stream must be adopted first, nothing is planned on it."""
    made = plan(stream(), found(stream(metadata={})), consumers=({"name": "audit"},))

    assert [step.asset for step in made.steps] == ["stream LOGS_0"]


def test_another_installation_of_the_same_name_is_a_stranger() -> None:
    """Two clusters with one server and equal names do not take each other's streams."""
    ours = stream(metadata={**OWNER, INSTALLATION_KEY: "here"})
    theirs = found(stream(metadata={**OWNER, INSTALLATION_KEY: "there"}))

    assert plan(ours, theirs).steps[0].kind is Kind.ADOPT_NEEDED


def test_who_knows_no_installation_leaves_its_mark_alone() -> None:
    """The command, which knows no installation, sees no drift in the operator's mark."""
    assert plan(stream(), found(stream(metadata={**OWNER, INSTALLATION_KEY: "there"}))).is_empty


def test_a_stream_of_ours_that_is_not_wanted_any_more_is_kept_and_named() -> None:
    """Fewer partitions leave streams behind; they may hold lines, so they are only reported."""
    left = found({**stream(), "name": "LOGS_1", "subjects": ["logs.p1.>"]})

    made = plan(stream(), found(stream()), left)

    assert made.unwanted == ("LOGS_1",)
    assert made.is_empty
    assert made.problems == ()


def test_a_strangers_stream_on_our_subjects_blocks_everything() -> None:
    """It would take our lines, or the server would refuse ours: say so before anything is made."""
    theirs = found({"name": "EVERYTHING", "subjects": ["logs.>"]})

    made = plan(stream(), theirs)

    assert [problem.id for problem in made.blocking] == ["subjects-overlap"]
    assert "EVERYTHING" in made.problems[0].message


def test_a_consumer_of_ours_that_is_not_wanted_any_more_is_to_be_deleted() -> None:
    """Its position would be lost, so deleting it is a step of its own; a stranger's is nothing."""
    old = {"name": "old", "durable_name": "old", "metadata": OWNER}
    theirs = {"name": "theirs", "durable_name": "theirs"}

    (step,) = plan(stream(), found(stream(), old=old, theirs=theirs)).steps

    assert (step.asset, step.kind) == ("consumer LOGS_0/old", Kind.DELETE)
