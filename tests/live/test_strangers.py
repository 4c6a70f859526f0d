"""Who may publish for a host forges messages of its sources: whatever they say, each genuine line
is collected, once and in order, also by a successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from components.collecting import (
    HOSTS,
    PARTITIONS,
    Pipeline,
    Source,
    collecting,
    config_for,
    pipeline,
)
from logpipeline import checksum
from logpipeline.checksum import Checksum
from logpipeline.deduplication import GENERATIONS_MAX, LOSSES_MAX
from logpipeline.embedded import EmbeddedServer
from logpipeline.extents import EXTENTS_MAX, MARKS_MAX
from logpipeline.subjects import Subjects
from logpipeline.wire import MESSAGE_ID, Batch, Checksums, Previous, encode_headers
from waiting import eventually

HOST = HOSTS[0]
SUBJECT = Subjects("logs", PARTITIONS).of_host(HOST)
LINES = 6
FORGED = b"forged\n"
UNKNOWN = Checksum(0x1234)
OTHER = "f" * 16

Message = tuple[str, bytes, dict[str, str]]


@dataclass
class Victim(Source):
    """A source of a shipper that sends checksums."""

    sum: Checksum = checksum.NOTHING
    sums: dict[int, Checksum] = field(default_factory=dict)

    def batch(self, lines: bytes) -> Batch:
        """Return the headers of the next batch."""
        sums = Checksums.around(lines, self.sum)
        self.sums[self.offset] = self.sum
        self.sum = sums.after
        return replace(super().batch(lines), checksums=sums)

    async def write(self, made: Pipeline, what: str) -> int:
        """Send some lines, each of its own, and return the sequence of the last."""
        for number in range(LINES):
            ack = await self.send(made.js, f"{what} {number} of {self.path}")
        return ack.sequence


def message(batch: Batch, payload: bytes, subject: str = SUBJECT, **headers: str) -> Message:
    """Return a message without an id, by which the server could know it again."""
    fields = encode_headers(batch, "")
    del fields[MESSAGE_ID]
    return subject, payload, fields | {name.replace("_", "-"): v for name, v in headers.items()}


def forged(
    victim: Victim, start: int, size: int, before: Checksum | None = UNKNOWN, **changes: Any
) -> tuple[Batch, bytes]:
    """Return a batch in the name of *victim*, with checksums that fit its own bytes."""
    data = (FORGED * (size // len(FORGED) + 1))[:size]
    sums = None if before is None else Checksums.around(data, before)
    batch = Batch(
        source=victim.path,
        generation=victim.generation,
        start=start,
        end=start + size,
        lines=1,
        format="plain",
        checksums=sums,
    )
    return replace(batch, **changes), data


SIZE = 7 * 700
WITHIN_S = 120.0
# What was forgotten is written again where its shipper sends it again: rather than not at all.
MAY_COME_TWICE = {"more_generations_than_are_kept"}
Attack = Callable[[Victim], Iterator[Message]]
ATTACKS: dict[str, Attack] = {}


def attack(make: Attack) -> Attack:
    """Put *make* in the table."""
    ATTACKS[make.__name__] = make
    return make


@attack
def a_future_range(victim: Victim) -> Iterator[Message]:
    """It begins in the midst of the next genuine line."""
    yield message(*forged(victim, victim.offset + 10, SIZE))


@attack
def a_future_range_without_checksums(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset + 10, SIZE, None))


@attack
def a_future_range_that_claims_to_come_again(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset + 10, SIZE, resend=True))


@attack
def a_range_that_covers_what_comes(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset, SIZE))


@attack
def a_few_bytes_that_cover_megabytes(victim: Victim) -> Iterator[Message]:
    batch, data = forged(victim, victim.offset, 7 << 20, None, compressed=True)
    yield message(batch, zstandard.ZstdCompressor().compress(data))


@attack
def a_range_that_covers_everything(victim: Victim) -> Iterator[Message]:
    """The checksum at the begin of each file is known to all."""
    yield message(*forged(victim, 0, victim.offset + SIZE, checksum.NOTHING))


@attack
def a_range_that_covers_everything_again(victim: Victim) -> Iterator[Message]:
    size = victim.offset + SIZE
    yield message(*forged(victim, 0, size, checksum.NOTHING, resend=True))


@attack
def a_range_that_covers_everything_without_checksums(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, 0, victim.offset + SIZE, None))


@attack
def a_range_inside_of_what_is_collected(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset // 2, 70))
    yield message(*forged(victim, victim.offset // 2, victim.offset))


@attack
def what_continues_the_file_with_its_checksum(victim: Victim) -> Iterator[Message]:
    """Of who was told the checksum, or knows the file."""
    yield message(*forged(victim, victim.offset, SIZE, victim.sum))


@attack
def what_continues_the_file_in_several_messages(victim: Victim) -> Iterator[Message]:
    before = victim.sum
    for number in range(MARKS_MAX - 1):
        batch, data = forged(victim, victim.offset + 70 * number, 70, before)
        yield message(batch, data)
        assert batch.checksums is not None
        before = batch.checksums.after


@attack
def what_continues_the_file_and_claims_to_come_again(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset, SIZE, victim.sum, resend=True))


@attack
def what_continues_an_earlier_line(victim: Victim) -> Iterator[Message]:
    start, before = list(victim.sums.items())[-2]
    yield message(*forged(victim, start, SIZE, before))
    yield message(*forged(victim, start, 7, before))


@attack
def a_loss_of_what_comes(victim: Victim) -> Iterator[Message]:
    batch, _ = forged(victim, victim.offset, SIZE, None, lost="rotated", lines=0)
    yield message(batch, b"")


@attack
def a_loss_of_all_that_there_can_be(victim: Victim) -> Iterator[Message]:
    batch, _ = forged(victim, 0, 7, None, lost="rotated", lines=0)
    yield message(batch, b"", Log_Range=f"{victim.offset}-{1 << 62}")


@attack
def more_losses_than_are_listed(victim: Victim) -> Iterator[Message]:
    for number in range(LOSSES_MAX + 10):
        start = victim.offset + 14 * number
        batch, _ = forged(victim, start, 7, None, lost="rotated", lines=0)
        yield message(batch, b"")


@attack
def a_loss_and_what_follows_it(victim: Victim) -> Iterator[Message]:
    """No checksum goes over a loss."""
    batch, _ = forged(victim, victim.offset, 7, None, lost="rotated", lines=0)
    yield message(batch, b"")
    yield message(*forged(victim, victim.offset + 7, SIZE, None))
    yield message(*forged(victim, victim.offset + 7, SIZE))


@attack
def a_file_that_begins_later(victim: Victim) -> Iterator[Message]:
    start = victim.offset + SIZE
    yield message(*forged(victim, start, SIZE, checksum.NOTHING, begins=True))
    yield message(*forged(victim, start, SIZE, None, begins=True))
    batch, _ = forged(victim, start, SIZE, None, begins=True, lost="rotated")
    yield message(batch, b"")


@attack
def a_predecessor_that_never_was(victim: Victim) -> Iterator[Message]:
    previous = Previous("e" * 16, 1 << 60)
    for before in (None, checksum.NOTHING):
        batch, data = forged(victim, 0, 70, before, generation=OTHER, previous=previous)
        yield message(batch, data)


@attack
def a_predecessor_that_was_longer(victim: Victim) -> Iterator[Message]:
    previous = Previous(victim.generation, victim.offset + SIZE)
    for number, before in enumerate((None, checksum.NOTHING)):
        name = f"{number:016x}"
        batch, data = forged(victim, 0, 70, before, generation=name, previous=previous)
        yield message(batch, data)


@attack
def what_cannot_be_unpacked(victim: Victim) -> Iterator[Message]:
    batch, _ = forged(victim, victim.offset, SIZE, victim.sum, compressed=True)
    yield message(batch, b"no frame")
    yield message(batch, zstandard.ZstdCompressor().compress(bytes(64 << 20)))
    batch, _ = forged(victim, victim.offset + 10, SIZE, compressed=True)
    yield message(batch, b"no frame")


@attack
def what_has_other_bytes_than_its_checksums(victim: Victim) -> Iterator[Message]:
    """Headers alone do not tell it."""
    batch, data = forged(victim, victim.offset, SIZE, victim.sum)
    yield message(batch, data[::-1])
    batch, data = forged(victim, victim.offset, SIZE, victim.sum, resend=True)
    yield message(batch, data[::-1])
    batch, data = forged(victim, victim.offset + 10, SIZE)
    yield message(batch, data[::-1])


@attack
def offsets_at_the_end_of_numbers(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, (1 << 62) - SIZE, SIZE))
    yield message(*forged(victim, (1 << 62) - SIZE, SIZE, None))
    batch, data = forged(victim, 0, SIZE)
    for text in (f"{(1 << 63) - 5}-{(1 << 63) - 1}", "-7-0", "0--7", "7-7", "9-2", "x-y", "-", ""):
        yield message(batch, data, Log_Range=text)


@attack
def more_ranges_apart_than_are_kept(victim: Victim) -> Iterator[Message]:
    for number in range(EXTENTS_MAX + 20):
        yield message(*forged(victim, victim.offset + 10 + 14 * number, 7))


@attack
def more_generations_than_are_kept(victim: Victim) -> Iterator[Message]:
    for number in range(GENERATIONS_MAX + 10):
        generation = f"{number:016x}"
        yield message(*forged(victim, 0, 7, checksum.NOTHING, generation=generation))


@attack
def sources_that_were_made_up(victim: Victim) -> Iterator[Message]:
    for number in range(100):
        yield message(*forged(victim, 0, 7, source=f"/made/up/{number}"))


@attack
def headers_beyond_all_limits(victim: Victim) -> Iterator[Message]:
    batch, data = forged(victim, victim.offset, SIZE)
    yield message(batch, data, Log_Pod="x" * 20_000)
    labels = tuple((f"label-{number}", "x") for number in range(400))
    yield message(replace(batch, labels=labels), data)
    yield message(replace(batch, source="/" * 5000), data)


@attack
def the_very_same_messages_again(victim: Victim) -> Iterator[Message]:
    for batch, data in victim.batches:
        yield message(batch, data)
        yield message(replace(batch, resend=True), data)


@attack
def the_very_same_messages_in_the_name_of_another_host(victim: Victim) -> Iterator[Message]:
    for batch, data in victim.batches:
        yield message(batch, data, Subjects("logs", PARTITIONS).of_host("node-z"))


@attack
def times_to_come(victim: Victim) -> Iterator[Message]:
    times: dict[str, Any] = {"first_time_ns": 1 << 61, "last_time_ns": 1 << 62}
    yield message(*forged(victim, victim.offset, SIZE, **times))
    yield message(*forged(victim, 0, 7, checksum.NOTHING, generation=OTHER, **times))


@attack
def another_format(victim: Victim) -> Iterator[Message]:
    yield message(*forged(victim, victim.offset, SIZE, format="cri"))


@attack
def a_letter_that_comes_back(victim: Victim) -> Iterator[Message]:
    batch, data = forged(victim, victim.offset, SIZE)
    yield message(batch, data, Dead_Retry_Of="1", Dead_Retry_For="x")


@attack
def a_file_before_its_time(victim: Victim) -> Iterator[Message]:
    """The genuine name of a source, before anything of the next file came."""
    for before in (None, checksum.NOTHING):
        yield message(*forged(victim, 0, SIZE, before, generation=OTHER))


@pytest.mark.parametrize("is_snapshot_lost", [False, True], ids=["headers", "whole-messages"])
async def test_forged_messages_hide_no_genuine_line(
    nats_server: EmbeddedServer, tmp_path: Path, is_snapshot_lost: bool
) -> None:
    """Nor do they after a successor has learned from the stream what was collected."""
    folders = [tmp_path / "a", tmp_path / "b"]
    victims = {name: Victim(HOST, f"/var/log/{name}") for name in ATTACKS}
    last = 0
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        never = {"snapshot_every_s": 3600.0}
        config = config_for(nats_server, folders[0], "collector-0", **never)
        async with collecting(config) as first:
            for name, victim in victims.items():
                await victim.write(made, "before")
                await strike(made, victim, ATTACKS[name])
                await victim.write(made, "after")
                await strike(made, victim, ATTACKS[name])
                await victim.send_again(made.js, len(victim.batches) - 1, attempt="again")
                last = await victim.write(made, "later")
            await until_read(made, last)
            if not is_snapshot_lost:
                first.cancel()  # It dies without one.
        if is_snapshot_lost:
            await made.js.call("STREAM.PURGE.SNAPSHOTS")
        else:
            record = await made.epoch()
            assert record is not None
            assert record.snapshot == 0
            assert record.refused != ()
        await made.assign("collector-1")
        async with collecting(config_for(nats_server, folders[1], "collector-1")):
            for victim in victims.values():
                await victim.send_again(made.js, len(victim.batches) - 1, attempt="once-more")
                last = await victim.write(made, "successor")
            await until_read(made, last)

    hidden = {name: differences(victim, *folders) for name, victim in victims.items()}
    assert {name: what for name, what in hidden.items() if what} == {}


async def strike(made: Pipeline, victim: Victim, attack: Attack) -> None:
    """Publish what *attack* makes; the order among all of one connection is kept."""
    for subject, payload, headers in attack(victim):
        await made.js.connection.publish(subject, payload, headers=headers)


async def until_read(made: Pipeline, sequence: int) -> None:
    """Return when the collectors are through: each letter takes its time."""

    async def is_read() -> bool:
        seen = await made.committed()
        assert seen >= sequence, f"{seen} of {sequence}"
        return True

    await eventually(is_read, within_s=WITHIN_S, what="all is read")


def differences(victim: Victim, *folders: Path) -> str:
    """Return what is wrong with the genuine lines of *victim*, empty if nothing is."""
    lines = victim.collected(*folders).splitlines()
    stood = [_genuine(line) for line in lines if b" of /" in line]
    sent = victim.sent.splitlines()
    if Path(victim.path).name in MAY_COME_TWICE:
        stood = list(dict.fromkeys(stood))
    if stood == sent:
        return ""
    lost, twice = set(sent) - set(stood), len(stood) - len(set(stood))
    return f"{len(lost)} of {len(sent)} lost, {twice} twice, sorted {sorted(stood) == sorted(sent)}"


def _genuine(line: bytes) -> bytes:
    # A forged batch may end without a newline, and what follows it stands in its line.
    begins = [line.find(word) for word in (b"before ", b"after ", b"later ", b"successor ")]
    return line[min(begin for begin in begins if begin >= 0) :]
