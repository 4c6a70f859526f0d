"""What a message shows of those before it, where a group left out what was stored at its begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from components.partition_files import opened, position
from logpipeline.dead_letters import RETRY_OF
from logpipeline.messages import Read
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.streamstate import StreamState, Verdict
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers
from logpipeline_collector import intake
from logpipeline_collector.intake import Intake
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.stream_position import Marks, StreamMissing, gone_back

SUBJECTS = Subjects("logs", 10)
# The group's own begin.
BEGUN = 10


class Server:
    """A server whose stream has *first*, and lacks the messages *removed* behind it; it does not
    answer while *is_silent*. A fake: what it says stands beside what was delivered.
    """

    def __init__(self, first: int = 1) -> None:
        self.first = first
        self.removed: list[int] = []
        self.is_silent = self.is_gone = False
        self.asked = 0

    async def stream_info(self, _: str) -> dict[str, Any] | None:
        """What is asked."""
        self.asked += 1
        if self.is_gone:
            return None
        if self.is_silent:
            raise ApiError("STREAM.INFO", 503, 0, "no leader")
        state = {
            "first_seq": self.first,
            "last_seq": 99,
            "last_ts": "2026-01-31T12:00:00Z",
            "messages": 1,
            "bytes": 1,
            "num_deleted": len(self.removed),
        }
        return {"created": position(1).created, "state": state, "config": {}}

    async def call(self, _: str, asked: dict[str, bool]) -> dict[str, Any]:
        """Which messages are removed."""
        assert asked == {"deleted_details": True}
        return {"state": {"deleted": self.removed}}


def owned_from_midway(folder: Path, *, is_single: bool) -> OwnedPartition:
    """Return a partition of a group that began behind `BEGUN`."""
    record = SimpleNamespace(
        epoch=1,
        refused=(),
        missed_messages=0,
        lost_bytes=0,
        snapshot_at=0,
        begun=BEGUN,
        begun_ns=BEGUN,
    )
    owned = OwnedPartition(
        partition=7,
        stream="LOGS",
        subjects=("logs.p7.>",) if is_single else (),
        writer=opened(folder, partition=7),
        held=cast("Any", SimpleNamespace(record=record)),
        position=position(BEGUN),
        rollbacks=0,
        marks=Marks(),
        assignment=lambda: 1,
        commit_bytes=1,
        committed_to=lambda *_: None,
        goes_on=lambda: True,
    )
    owned.begin_midway()
    return owned


def intake_of(server: Server) -> Intake:
    """Return an intake that asks *server*."""
    return Intake(cast("Any", server), SUBJECTS, cast("Any", None))


def delivered(sequence: int, *, start: int, source: str = "/a") -> Delivered:
    """Return a message of two bytes of *source*."""
    batch = Batch(
        source=source, generation="0" * 16, start=start, end=start + 2, lines=1, format="plain"
    )
    rows = "".join(f"{name}: {value}\r\n" for name, value in encode_headers(batch, "id").items())
    headers = f"NATS/1.0\r\n{rows}\r\n".encode()
    message = RawMessage(b"logs.p7.node-a", b"", headers, b"x\n")
    return Delivered(message, sequence=sequence, delivery=1, time_ns=sequence, pending=0)


@pytest.mark.parametrize("is_single", [False, True], ids=["partitions", "single"])
async def test_the_first_message_behind_a_gap_is_not_its_source_s_begin(
    tmp_path: Path, is_single: bool
) -> None:
    """The messages with the first bytes may have left the stream unread: these are expected."""
    server = Server()
    owned, taking = owned_from_midway(tmp_path, is_single=is_single), intake_of(server)
    await taking.take(owned, delivered(11, start=0, source="/b"))
    server.first = 13
    await taking.take(owned, delivered(13, start=1000))

    assert owned.writer.missing() == [("node-a", "/a", 1000)]
    assert owned.missed_messages == 1
    assert owned.position.sequence == 13


@pytest.mark.parametrize("is_single", [False, True], ids=["partitions", "single"])
async def test_without_a_gap_a_source_begins_where_it_is_first_seen(
    tmp_path: Path, is_single: bool
) -> None:
    """What lies before was left out on purpose. The stream is asked once for a new source."""
    server = Server(first=11)
    owned, taking = owned_from_midway(tmp_path, is_single=is_single), intake_of(server)
    await taking.take(owned, delivered(11, start=1000))
    # Of a single stream, the twelfth message is another partition's.
    await taking.take(owned, delivered(13 if is_single else 12, start=1002))

    assert owned.writer.missing() == []
    assert owned.missed_messages == 0
    assert server.asked == is_single


@pytest.mark.parametrize(
    ("removed", "missing"),
    [([12], [("node-a", "/a", 1000)]), ([9, 12], [("node-a", "/a", 1000)]), ([9, 11, 14], [])],
    ids=["between", "one of them between", "elsewhere"],
)
async def test_messages_of_a_single_stream_that_were_removed_one_by_one_may_be_ours(
    tmp_path: Path, removed: list[int], missing: list[tuple[str, str, int]]
) -> None:
    """The stream's first one says nothing about them; a source that is known stays as it is."""
    server = Server()
    owned, taking = owned_from_midway(tmp_path, is_single=True), intake_of(server)
    await taking.take(owned, delivered(11, start=1000, source="/b"))
    server.removed = removed
    await taking.take(owned, delivered(13, start=1000))

    assert owned.writer.missing() == missing
    assert owned.missed_messages == 0


@pytest.mark.parametrize(
    ("listed", "missing"),
    [(1, [("node-a", "/a", 1000)]), (2, [])],
    ids=["too many", "just so many"],
)
async def test_where_too_many_messages_were_removed_to_be_listed_one_may_be_ours(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: int,
    missing: list[tuple[str, str, int]],
) -> None:
    """Bytes that are expected in vain are sent again, or named as lost. Those that are listed lie
    elsewhere.
    """
    monkeypatch.setattr(intake, "REMOVED_LISTED_MAX", listed)
    server = Server()
    server.removed = [1, 2]
    owned = owned_from_midway(tmp_path, is_single=True)
    await intake_of(server).take(owned, delivered(13, start=1000))

    assert owned.writer.missing() == missing


async def test_a_message_is_not_taken_while_the_stream_cannot_be_asked(tmp_path: Path) -> None:
    """It is read again, and decided then."""
    server = Server()
    server.is_silent = True
    owned, taking = owned_from_midway(tmp_path, is_single=True), intake_of(server)
    with pytest.raises(ApiError):
        await taking.take(owned, delivered(12, start=1000))

    assert owned.position.sequence == BEGUN
    assert owned.writer.dirty_bytes == 0


async def test_a_stream_that_is_gone_is_named(tmp_path: Path) -> None:
    """Nothing is known of what was missed."""
    server = Server()
    server.is_gone = True
    owned = owned_from_midway(tmp_path, is_single=True)
    with pytest.raises(StreamMissing):
        await intake_of(server).take(owned, delivered(13, start=1000))

    assert owned.position.sequence == BEGUN


class Letters:
    """The dead letters that were put aside, by their sequences and reasons."""

    def __init__(self) -> None:
        self.put_aside: list[tuple[int, str]] = []

    async def put(
        self, delivered: Delivered, owned: OwnedPartition, *, reason: str, detail: str
    ) -> None:
        assert detail
        self.put_aside.append((delivered.sequence, reason))


async def test_a_message_that_cannot_be_used_becomes_a_letter_and_stops_none(
    tmp_path: Path,
) -> None:
    """A successor, which reads headers only, has to be told of a payload that contradicts them."""
    letters = Letters()
    owned = owned_from_midway(tmp_path, is_single=False)
    taking = Intake(cast("Any", Server()), SUBJECTS, cast("Any", letters))
    bad = delivered(11, start=0)
    await taking.take(owned, replace(bad, message=bad.message._replace(subject=b"logs.p3.node-a")))
    longer = delivered(12, start=0)
    await taking.take(owned, replace(longer, message=longer.message._replace(data=b"xyz\n")))
    await taking.take(owned, delivered(13, start=0))

    assert [sequence for sequence, _ in letters.put_aside] == [11, 12]
    assert letters.put_aside[0][1] == "bad-subject"
    assert (owned.dead_letters, owned.refused) == (2, (12,))
    assert owned.position.sequence == 13
    assert owned.writer.dirty_bytes > 0


@pytest.mark.parametrize(
    ("begun_ns", "is_ours", "is_written"),
    [
        pytest.param(0, True, True, id="a shipper's, whose bytes are known by their range"),
        pytest.param(0, False, False, id="another program's, which was written before"),
        pytest.param(20, True, False, id="from before the group began"),
    ],
)
async def test_what_a_roll_back_brings_again_is_written_where_it_is_new(
    tmp_path: Path, begun_ns: int, is_ours: bool, is_written: bool
) -> None:
    """And counts as read in any case."""
    owned = owned_from_midway(tmp_path, is_single=False)
    cast("Any", owned.held.record).begun_ns = begun_ns
    state = StreamState(position(1).created, 1, 99)
    owned.adopt(gone_back(Verdict.ROLLED_BACK, position(20), state, position(BEGUN)))
    message = delivered(11, start=0)
    if not is_ours:
        message = replace(message, message=message.message._replace(headers=b""))
    await intake_of(Server()).take(owned, message)

    assert owned.position.sequence == 11
    assert bool(owned.writer.dirty_bytes) is is_written


@pytest.mark.parametrize(
    ("sequence", "has_payload", "size", "is_learned"),
    [
        pytest.param(11, False, 2, True, id="by its headers"),
        pytest.param(11, False, 3, False, id="whose payload has another size"),
        pytest.param(11, True, 3, True, id="by its payload"),
        pytest.param(12, True, 2, False, id="that was refused"),
    ],
)
def test_what_another_collector_has_written_is_learned(
    tmp_path: Path, sequence: int, has_payload: bool, size: int, is_learned: bool
) -> None:
    """By the rule by which it did."""
    owned = owned_from_midway(tmp_path, is_single=False)
    owned.refused = (12,)
    found = delivered(sequence, start=0)
    headers = found.message.headers[:-2] + b"Nats-Msg-Size: %d\r\n\r\n" % size
    message = found.message._replace(headers=headers)
    intake_of(Server()).learn(owned, replace(found, message=message), has_payload=has_payload)
    batch = Batch(source="/a", generation="0" * 16, start=0, end=2, lines=1, format="plain")
    owned.writer.take("node-a", batch, b"x\n", sequence=13, time_ns=13)

    assert owned.writer.duplicates == is_learned


def test_what_no_collector_wrote_is_not_learned(tmp_path: Path) -> None:
    """Another program's message, and one with a subject of another partition."""
    owned = owned_from_midway(tmp_path, is_single=False)
    found = delivered(11, start=0)
    for message in (
        found.message._replace(headers=b""),
        found.message._replace(subject=b"logs.p3.node-a"),
    ):
        intake_of(Server()).learn(owned, replace(found, message=message), has_payload=True)


@pytest.mark.parametrize("is_letter", [True, False])
def test_a_letter_that_is_sent_again_may_hold_what_came_meanwhile(is_letter: bool) -> None:
    """So its bytes are compared."""
    batch = Batch(source="/a", generation="0" * 16, start=0, end=2, lines=1, format="plain")
    read = Read("node-a", batch, {RETRY_OF: "7"} if is_letter else {})

    found = intake._batch_of(read)

    assert found is not None
    assert found.resend is is_letter
    assert intake._batch_of(Read("node-a", None, {RETRY_OF: "7"})) is None
