"""Acknowledged bytes are sent again on evidence of loss; never on mere lag, and never for ever."""

from __future__ import annotations

import pytest

from logpipeline.nats.jetstream import PubAck, StoredMessage
from logpipeline.wire import Batch
from logpipeline_shipper import resend
from logpipeline_shipper.account import GROUPS_MAX, Gap
from logpipeline_shipper.checkpoint import Key, LastAck
from logpipeline_shipper.message import Message
from logpipeline_shipper.reconnect import LastAcks
from logpipeline_shipper.resend import (
    EMPTY_SUBJECT_IS_LOSS_S,
    TRIES_MAX,
    TRY_INTERVAL_S,
    Due,
    Rollbacks,
    Tries,
    is_lost,
)

LAST = LastAck("LOGS_0", 1000, "id-1000", 50.0)
KEY = Key("node-a", "/var/log/app.log")


def stored(sequence: int, identifier: str) -> StoredMessage:
    headers = f"NATS/1.0\r\nNats-Msg-Id: {identifier}\r\n\r\n".encode()
    return StoredMessage("logs.p0.node-a", sequence, 0, headers, b"")


def test_the_acknowledged_message_at_its_place_is_no_loss() -> None:
    """A reconnect alone proves nothing."""
    assert not is_lost(LAST, stored(1000, "id-1000"), 60.0)


def test_a_later_message_of_ours_is_no_loss() -> None:
    """Its acknowledgement did not reach us: that is an unknown outcome, and handled as one."""
    assert not is_lost(LAST, stored(1001, "id-1001"), 60.0)


def test_an_earlier_last_message_is_loss() -> None:
    """The server went back behind what it had acknowledged."""
    assert is_lost(LAST, stored(500, "id-500"), 60.0)


def test_another_message_at_the_same_sequence_is_loss() -> None:
    """A server that lost its tail uses sequences again."""
    assert is_lost(LAST, stored(1000, "id-other"), 60.0)


def test_an_empty_subject_is_loss_only_while_the_acknowledgement_is_young() -> None:
    """A stream's retention empties a subject that was quiet for long."""
    assert is_lost(LAST, None, 50.0 + EMPTY_SUBJECT_IS_LOSS_S - 1)
    assert not is_lost(LAST, None, 50.0 + EMPTY_SUBJECT_IS_LOSS_S)


def test_a_message_that_is_none_of_ours_at_its_place_is_loss() -> None:
    """It has no id, or no headers that anyone could read."""
    unreadable = StoredMessage("logs.p0.node-a", 1000, 0, b"HTTP/1.0 nonsense", b"")

    assert is_lost(LAST, unreadable, 60.0)
    assert is_lost(LAST, StoredMessage("logs.p0.node-a", 1000, 0, b"", b""), 60.0)


def test_a_hole_is_filled_at_intervals_and_given_up_in_the_end() -> None:
    """A collector that names a hole again and again does not make us send for ever."""
    tries, gap = Tries(), Gap("g1", 0, 10, "removed")

    asked = [tries.due(KEY, gap, now_s) for now_s in (0.0, 1.0, TRY_INTERVAL_S)]
    later = [tries.due(KEY, gap, n * TRY_INTERVAL_S) for n in range(2, TRIES_MAX + 3)]

    assert asked == [Due.NOW, Due.LATER, Due.NOW]
    assert later.count(Due.NOW) == TRIES_MAX - 2
    assert later.count(Due.NEVER) == 1
    assert later[-1] is Due.LATER


def test_gaps_beyond_the_limit_are_forgotten_the_one_that_waits_longest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried anew then."""
    monkeypatch.setattr(resend, "TRACKED_MAX", 2)
    tries = Tries()
    gaps = [Gap("g1", start, start + 10, "removed") for start in (0, 10, 20)]
    first = [tries.due(KEY, gap, 0.0) for gap in gaps]

    assert first == [Due.NOW] * 3
    assert [tries.due(KEY, gap, 1.0) for gap in (gaps[1], gaps[2], gaps[0])] == [
        Due.LATER,
        Due.LATER,
        Due.NOW,
    ]


def test_a_gap_is_tried_again_when_the_interval_is_over() -> None:
    """From each try on, and not from when it was asked for."""
    tries, gap = Tries(), Gap("g1", 0, 10, "removed")
    times_s = (5.0, 5.0 + TRY_INTERVAL_S - 1, 5.0 + TRY_INTERVAL_S)

    assert [tries.due(KEY, gap, now_s) for now_s in times_s] == [Due.NOW, Due.LATER, Due.NOW]


def test_groups_beyond_the_limit_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are known go on."""
    monkeypatch.setattr(resend, "GROUPS_MAX", 0)
    rollbacks = Rollbacks({"3/main": 1, "3/spare": 4})

    assert not rollbacks.rose("more", 3, 1)
    assert rollbacks.rose("main", 3, 2)
    assert rollbacks.counts == {"3/main": 2, "3/spare": 4}
    rollbacks.forget("main")
    assert rollbacks.counts == {"3/spare": 4}


def test_groups_are_counted_up_to_the_limit() -> None:
    """So many partitions of so many groups."""
    rollbacks = Rollbacks({f"{number}/main": 1 for number in range(GROUPS_MAX * 1024 - 1)})
    rollbacks.rose("last", 0, 1)
    rollbacks.rose("more", 0, 1)

    assert "0/last" in rollbacks.counts
    assert "0/more" not in rollbacks.counts


def test_only_a_rise_of_the_count_is_a_rollback() -> None:
    """The first word of a group, and the same one again, say nothing."""
    rollbacks = Rollbacks({"3/main": 1})

    assert not rollbacks.rose("main", 3, 1)
    assert rollbacks.rose("main", 3, 2)
    assert not rollbacks.rose("main", 3, 2)
    assert not rollbacks.rose("spare", 3, 5)


def test_roll_backs_that_are_counted_anew_are_counted_from_there() -> None:
    """Where collectors lost their records, a new one is noticed; so it is after a forged number."""
    rollbacks = Rollbacks({"3/main": 10**9})

    assert not rollbacks.is_higher("main", 3, 0)
    assert not rollbacks.rose("main", 3, 0)
    assert rollbacks.is_higher("main", 3, 1)
    assert rollbacks.rose("main", 3, 1)
    rollbacks.forget("main")
    assert rollbacks.counts == {}


def message(identifier: str) -> Message:
    batch = Batch(source="s", generation="g", start=0, end=1, lines=1, format="plain")
    return Message("logs.p0.node-a", batch, identifier, b"")


def test_a_sequence_that_goes_back_is_noticed_once() -> None:
    """Later acknowledgements of publishes from before are no further roll-back."""
    noticed: list[str] = []
    acks = LastAcks({"logs.p0.node-a": LAST}, noticed.append)

    before = acks.floor("logs.p0.node-a")
    acks.note(message("a"), PubAck("LOGS_0", 501, duplicate=False), before)
    acks.note(message("b"), PubAck("LOGS_0", 502, duplicate=False), before)

    assert noticed == ["LOGS_0"]
    assert acks.floor("logs.p0.node-a") == 502


def test_an_acknowledgement_overtaken_by_another_is_no_rollback() -> None:
    """Many sources are in flight on one stream, and their answers cross."""
    noticed: list[str] = []
    acks = LastAcks({"logs.p0.node-a": LAST}, noticed.append)

    before = acks.floor("logs.p0.node-a")
    acks.note(message("b"), PubAck("LOGS_0", 1002, duplicate=False), before)
    acks.note(message("a"), PubAck("LOGS_0", 1001, duplicate=False), before)

    assert noticed == []
    assert acks.last["logs.p0.node-a"].sequence == 1002


def test_a_duplicate_says_nothing_about_sequences() -> None:
    """It carries the number of the first message with that id."""
    noticed: list[str] = []
    acks = LastAcks({"logs.p0.node-a": LAST}, noticed.append)

    acks.note(message("a"), PubAck("LOGS_0", 7, duplicate=True), acks.floor("logs.p0.node-a"))

    assert noticed == []
    assert acks.last["logs.p0.node-a"] == LAST
