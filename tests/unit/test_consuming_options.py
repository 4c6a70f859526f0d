"""Which words a reader takes, what they mean, and what it says to those that make no sense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logpipeline.consuming.consumer import config
from logpipeline.consuming.options import Acks, BadOption, ConsumeOptions, checked, parse_acks

OPTIONS = ConsumeOptions(name="billing")
POSITION = "17 123 2026-11-21T10:00:00Z"


@pytest.mark.parametrize(
    ("text", "acks"),
    [
        ("each", Acks("each")),
        ("all", Acks("all")),
        ("none", Acks("none")),
        ("every=100", Acks("spaced", 100)),
        ("every=10000", Acks("spaced", 10_000)),
        ("interval=30s", Acks("spaced", 0, 30.0)),
        ("interval=500ms", Acks("spaced", 0, 0.5)),
        ("every=100,interval=30s", Acks("spaced", 100, 30.0)),
        ("interval=30s, every=100", Acks("spaced", 100, 30.0)),
    ],
)
def test_acknowledgements_are_read(text: str, acks: Acks) -> None:
    """In either order, with a space behind the comma."""
    assert parse_acks(text) == acks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not an acknowledgement mode"),
        ("EACH", "is not an acknowledgement mode"),
        ("every", "is not an acknowledgement mode"),
        ("every=", "is not an acknowledgement mode"),
        ("every=0", "is not an acknowledgement mode"),
        ("every=-1", "is not an acknowledgement mode"),
        ("every=10001", "up to 10000"),
        ("every=1e3", "is not an acknowledgement mode"),
        ("every=²", "is not an acknowledgement mode"),
        ("every=1,every=2", "is not an acknowledgement mode"),
        ("interval=1s,interval=2s", "is not an acknowledgement mode"),
        ("each,every=2", "is not an acknowledgement mode"),
        ("interval=", "interval: "),
        ("interval=30", "interval: "),
        ("interval=0s", "longer than 0"),
    ],
)
def test_other_words_are_refused(text: str, said: str) -> None:
    """With what would be right."""
    with pytest.raises(BadOption, match=said):
        parse_acks(text)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "not a name of a consumer"),
        ({"name": "a.b"}, "not a name of a consumer"),
        ({"name": "a" * 65}, "not a name of a consumer"),
        ({"name": "a\n"}, "not a name of a consumer"),
        ({"member": "a b"}, "not a name of a member"),
        ({"batch": -1}, "a batch has 1 to 10000 messages"),
        ({"batch": 10_001}, "a batch has 1 to 10000 messages"),
        ({"in_order": True, "batch": 2}, "one message at a time"),
        ({"in_order": True, "acks": Acks("all")}, "one message in flight"),
        ({"in_order": True, "acks": Acks("spaced", 10)}, "one message in flight"),
        ({"group": True, "state": "billing.state"}, "a state file is for one reader"),
        ({"ephemeral": True, "group": True}, "no state and no group"),
        ({"ephemeral": True, "state": "kv"}, "no state and no group"),
        ({"deliver_policy": "byStartTime"}, "byStartTime and a start time belong together"),
        ({"opt_start_time": "2026-11-21T10:00:00Z"}, "byStartTime and a start time"),
        ({"deliver_policy": "byStartSequence"}, "byStartSequence and a start sequence"),
        ({"opt_start_seq": 1}, "byStartSequence and a start sequence"),
        ({"positions": {}, "state": "kv"}, "leave state and group out"),
        ({"positions": {}, "group": True}, "leave state and group out"),
        ({"positions": {"LOGS_0": "17"}}, "positions: LOGS_0: no position of a reader: '17'"),
        ({"positions": {"LOGS_0": 17}}, "give what batch.position was"),
    ],
)
def test_what_contradicts_itself_is_refused(wrong: dict[str, Any], said: str) -> None:
    """With what to leave out, or to give."""
    with pytest.raises(BadOption, match=said):
        checked(replace(OPTIONS, **wrong))


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"name": "A-b_9" * 12},
        {"group": True, "state": "kv", "batch": 50},
        {"in_order": True, "acks": Acks("none")},
        {"in_order": True, "batch": 1, "state": "billing.state"},
        {"deliver_policy": "byStartSequence", "opt_start_seq": 1},
        {"deliver_policy": "byStartTime", "opt_start_time": "2026-11-21T10:00:00Z"},
        {"positions": {"LOGS_0": POSITION}, "ephemeral": True},
    ],
)
def test_what_makes_sense_is_taken(right: dict[str, Any]) -> None:
    """As it is."""
    options = replace(OPTIONS, **right)

    assert checked(options) is options


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 1),
        ({"batch": 7}, 7),
        ({"acks": Acks("spaced", 30)}, 30),
        ({"acks": Acks("spaced", 0, 5.0)}, 100),
        ({"acks": Acks("spaced", 30), "batch": 7}, 7),
        ({"acks": Acks("all")}, 100),
        ({"acks": Acks("none")}, 100),
        ({"acks": Acks("none"), "in_order": True}, 1),
    ],
)
def test_a_batch_is_as_large_as_acknowledgements_suggest(given: dict[str, Any], most: int) -> None:
    """Unless it was said."""
    assert replace(OPTIONS, **given).batch_max == most


@pytest.mark.parametrize(
    ("given", "is_shared"),
    [
        ({}, False),
        ({"group": True}, True),
        ({"group": True, "acks": Acks("none")}, True),
        ({"group": True, "acks": Acks("all")}, False),
        ({"group": True, "acks": Acks("spaced", 10)}, False),
        ({"group": True, "state": "kv"}, False),
        ({"group": True, "in_order": True}, False),
    ],
)
def test_work_is_shared_only_where_no_order_is_wanted(
    given: dict[str, Any], is_shared: bool
) -> None:
    """Any message goes to any member, or each partition to one of them."""
    assert replace(OPTIONS, **given).is_shared == is_shared


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, {"ack_policy": "explicit", "deliver_policy": "all", "durable_name": "billing"}),
        ({"acks": Acks("all")}, {"ack_policy": "all"}),
        ({"acks": Acks("spaced", 10)}, {"ack_policy": "all"}),
        ({"acks": Acks("none")}, {"ack_policy": "none"}),
        ({"in_order": True}, {"max_ack_pending": 1}),
    ],
)
def test_a_consumer_is_made_as_the_options_ask(given: dict[str, Any], made: dict[str, Any]) -> None:
    """In JetStream's words."""
    assert made.items() <= config(replace(OPTIONS, **given), None).items()


def test_a_consumer_that_is_made_again_goes_on() -> None:
    """Behind what was read, wherever it was to begin."""
    options = replace(OPTIONS, deliver_policy="byStartTime", opt_start_time="2026-11-21T10:00:00Z")
    made = config(options, 41)

    assert (made["deliver_policy"], made["opt_start_seq"]) == ("by_start_sequence", 42)
    assert "opt_start_time" not in made


def test_an_ephemeral_consumer_goes_by_itself() -> None:
    """With its reader, after a while."""
    made = config(replace(OPTIONS, ephemeral=True), None)

    assert made["inactive_threshold"] == 300 * 10**9
    assert "durable_name" not in made


@pytest.mark.parametrize("given", [{}, {"ephemeral": True}, {"group": True}])
def test_the_server_does_not_count_tries(given: dict[str, Any]) -> None:
    """It counts deliveries, and would skip a message that nobody tried."""
    assert "max_deliver" not in config(replace(OPTIONS, tries_max=3, **given), None)
