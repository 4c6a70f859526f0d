"""A delivery that is missing, and a message that cannot be believed, are noticed at once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline.messages import has_its_size, read_message
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.records import StreamPosition
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, Batch, encode_headers
from logpipeline_collector.stream_reader import (
    ConsumerName,
    Interrupted,
    Missed,
    Order,
    StreamReader,
)
from logpipeline_collector.takeover import _take_until

SUBJECTS = Subjects("logs", 10)


def test_deliveries_in_order_are_accepted() -> None:
    """Sequences may have gaps; deliveries may not."""
    order = Order(10)
    for delivery, sequence in enumerate((11, 12, 15, 16), start=1):
        order.accept(delivered(delivery=delivery, sequence=sequence))

    assert order.sequence == 16


def test_messages_that_left_the_stream_are_counted_once() -> None:
    """A look at a quiet stream counts them, and the next message does not count them again."""
    missed = Missed()

    missed.note(read=10, found=11)
    assert missed.count == 0
    missed.note(read=10, found=14)
    missed.note(read=10, found=14)
    assert missed.count == 3
    missed.note(read=10, found=16)
    missed.note(read=16, found=18)
    assert missed.count == 6


def test_a_reader_that_begins_at_the_start_has_missed_nothing() -> None:
    """What expired before a group was made was never its own."""
    missed = Missed()
    missed.note(read=0, found=500)

    assert missed.count == 0


class Leaders:
    """What one server says after the other of a stream of two partitions, p0 and p1: its last
    message, and the first of p0 behind what was read. A fake: no test can choose who answers.
    """

    connection = SimpleNamespace(max_payload_bytes=1, new_inbox=lambda: "_INBOX.x")
    prefix = "$JS.API"

    def __init__(self, *answers: tuple[int, int | None], sent: int = 0) -> None:
        self._answers = list(answers)
        self._sent = sent

    async def stream_info(self, stream: str) -> dict[str, Any]:
        """Its last message."""
        self._last, self._ours = self._answers.pop(0)
        state = {"first_seq": 1, "last_seq": self._last, "messages": 1, "bytes": 1}
        last_ts = "2026-01-31T12:00:00Z"
        return {"created": "then", "state": {**state, "last_ts": last_ts}, "config": {}}

    async def call(self, request: str) -> dict[str, Any]:
        """How far the consumer is."""
        return {"num_pending": 0, "delivered": {"consumer_seq": self._sent}}

    async def next_from_leader(self, stream: str, sequence: int, subject: str) -> object:
        """The first message of p0 from *sequence* on."""
        ours = self._ours
        found = subject == "logs.p0.>" and ours is not None and ours >= sequence
        return SimpleNamespace(sequence=ours) if found else None


def idle_reader(leaders: Leaders) -> StreamReader:
    """A reader of partition 0, to whom nothing comes."""
    subjects = ("logs.p0.>", "logs.p10.>")
    name, js = ConsumerName("main", 1, 1, 0), cast("Any", leaders)
    return StreamReader(js, "LOGS", name, pull_bytes=1, headers_only=False, subjects=subjects)


async def test_an_idle_partition_passes_what_was_there_a_look_ago() -> None:
    """What others have stored since the look before may hide a message of ours on its way."""
    reader = idle_reader(Leaders((10, None), (20, None), (30, None)))

    await reader._look()
    first = reader.passed
    await reader._look()
    second = reader.passed
    await reader._look()
    third = reader.passed

    assert first is None
    assert second is not None
    assert third is not None
    assert (second.sequence, third.sequence) == (10, 20)


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        # A message of ours is there, and did not come.
        pytest.param([(10, 7)], 0, id="it is there"),
        # A leader that is none any more did not have it yet.
        pytest.param([(10, None), (20, 7)], 0, id="one answer was too old"),
    ],
)
async def test_a_message_that_did_not_come_is_not_passed(
    answers: list[tuple[int, int | None]], sent: int
) -> None:
    """Reading begins anew, behind the last one that came."""
    reader = idle_reader(Leaders(*answers, sent=sent))
    for _ in answers[1:]:
        await reader._look()

    with pytest.raises(Interrupted, match="0 was the last to come"):
        await reader._look()

    assert reader.passed is None


async def test_what_is_on_its_way_is_not_passed() -> None:
    """Though the stream has let it go since."""
    reader = idle_reader(Leaders((10, None), (20, None), (30, None), sent=1))

    for _ in range(3):
        await reader._look()

    assert reader.passed is None


def test_a_lost_delivery_is_noticed() -> None:
    """The client, or a network between, dropped one."""
    order = Order(10)
    order.accept(delivered(delivery=1, sequence=11))

    with pytest.raises(Interrupted, match="delivery 3 came after 1"):
        order.accept(delivered(delivery=3, sequence=13))


def test_a_sequence_that_goes_back_is_noticed() -> None:
    """The server lost its tail while we read."""
    order = Order(10)

    with pytest.raises(Interrupted, match="went back"):
        order.accept(delivered(delivery=1, sequence=10))


def test_a_consumer_names_its_group_and_epoch() -> None:
    """Another group's, or a person's, is none of ours, however alike it looks; nor is that of
    another partition of the same stream.
    """
    name = ConsumerName("main", 7, 2)

    assert name.read(str(name)) == name
    assert name.read("main-e5-e7-2") is None
    assert name.read("audit") is None
    assert name.read("main2-e7-2") is None
    assert name.read(str(replace(name, partition=7))) is None


def test_an_older_consumer_is_replaced_and_a_newer_one_is_not() -> None:
    """A zombie must not delete its successor's."""
    ours = ConsumerName("main", 7, 2)

    assert ConsumerName("main", 6, 9).is_before(ours)
    assert ConsumerName("main", 7, 1).is_before(ours)
    assert not ConsumerName("main", 8, 1).is_before(ours)
    assert not ours.is_before(ours)


def test_our_headers_and_none_at_all_are_both_read() -> None:
    """A stranger's message has no batch."""
    batch = Batch(source="a", generation="0" * 16, start=0, end=1, lines=1, format="plain")

    ours = read_message(SUBJECTS, 7, delivered(headers=block(encode_headers(batch, "id"))))
    theirs = read_message(SUBJECTS, 7, delivered())

    assert (ours.host, ours.batch) == ("node-a", batch)
    assert (theirs.host, theirs.batch) == ("node-a", None)


def test_a_subject_of_another_count_is_read_in_the_stream_of_its_remainder() -> None:
    """A shipper of another kind with 20 partitions sends to `p17`; ours are 10."""
    read = read_message(SUBJECTS, 7, delivered(subject=b"logs.p17.node-a"))

    assert read.host == "node-a"


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (b"logs.p3.node-a", "bad-subject"),
        (b"logs.p13.node-a", "bad-subject"),
        (b"other.p7.node-a", "bad-subject"),
        (b"logs.p7", "bad-host"),
        (b"logs.p07.node-a", "bad-subject"),
        (b"logs.p7.a..b", "bad-host"),
        (b"logs.p7.\xff", "bad-host"),
        (b"logs.p7.*", "bad-host"),
        (b"logs.p7." + b"a" * 300, "bad-host"),
    ],
)
def test_a_subject_that_is_not_of_the_partition_is_refused(subject: bytes, reason: str) -> None:
    """Partition 3 has a stream of its own."""
    with pytest.raises(BadMessage) as caught:
        read_message(SUBJECTS, 7, delivered(subject=subject))

    assert caught.value.reason == reason


@pytest.mark.parametrize("forged", ["\u00b2", "1", "9" * 5000, "", "-1", "\udcff"], ids=ascii)
@pytest.mark.parametrize(("size", "is_its"), [(6, True), (7, False), (None, True)])
def test_the_size_of_a_payload_is_the_servers_and_not_its_publishers(
    forged: str, size: int | None, is_its: bool
) -> None:
    """A publisher may write that header, too; the server's stands behind it, if there is one."""
    batch = Batch(source="a", generation="0" * 16, start=4, end=10, lines=1, format="plain")
    fields = encode_headers(batch, "id") | {"Nats-Msg-Size": forged}
    if size is None:
        del fields["Nats-Msg-Size"]
    added = b"" if size is None else f"Nats-Msg-Size: {size}\r\n\r\n".encode()
    headers = block(fields).removesuffix(b"\r\n") + added

    assert has_its_size(batch, headers) == is_its


def test_what_only_names_a_loss_has_no_payload() -> None:
    """A successor learns it from the headers, as it learns what was written."""
    loss = Batch(
        source="a", generation="0" * 16, start=4, end=10, lines=1, format="plain", lost="rotated"
    )

    assert has_its_size(loss, b"NATS/1.0\r\nNats-Msg-Size: 0\r\n\r\n")
    assert not has_its_size(loss, b"NATS/1.0\r\nNats-Msg-Size: 6\r\n\r\n")


class Scripted:
    """A reader that has one delivery, with one more pending, which is then removed."""

    pending = 2

    def __init__(self) -> None:
        self.takes = [[delivered(sequence=1, pending=1)], []]

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        """Return the next deliveries; without any, the server was asked what is pending."""
        deliveries = self.takes.pop(0)
        self.pending = deliveries[-1].pending if deliveries else 0
        return deliveries


class Learning:
    """A partition that is being taken over, and what is learned for it."""

    verified = None
    position = StreamPosition("then", 2, 2)

    def is_covered(self, _: Delivered) -> bool:
        """Tell that a predecessor has the message."""
        return True

    def note_learned(self, _: Delivered) -> None:
        """Take note of it."""

    async def learn(self, _: Delivered) -> None:
        """Learn it."""


async def test_a_take_over_waits_for_no_message_that_was_removed() -> None:
    """Another one may not come for hours."""
    learning = Learning()
    taken = await _take_until(
        cast("Any", Scripted()), cast("Any", learning), cast("Any", learning), lambda: True
    )

    assert taken == 1


async def test_a_take_over_that_is_not_wanted_any_more_ends() -> None:
    """However much is still to be learned."""
    learning = Learning()
    with pytest.raises(Interrupted, match="no longer assigned"):
        await _take_until(
            cast("Any", Scripted()), cast("Any", learning), cast("Any", learning), lambda: False
        )


def block(headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"NATS/1.0\r\n" + lines.encode("utf-8", "surrogateescape") + b"\r\n"


def delivered(
    *,
    delivery: int = 1,
    sequence: int = 1,
    subject: bytes = b"logs.p7.node-a",
    headers: bytes = b"",
    pending: int = 0,
) -> Delivered:
    message = RawMessage(subject, b"", headers, b"x")
    return Delivered(message, sequence, delivery, pending=pending, time_ns=0)
