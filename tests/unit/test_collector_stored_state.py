"""What a collector stores of itself, it can read: whatever the nodes' messages said."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.partition_files import Writer, opened
from fuzzing.parsers import EPOCH, PROGRESS
from logpipeline import json_text, wire, zstd
from logpipeline.checksum import Checksum
from logpipeline.deduplication import COUNT_MAX, NOTHING, decide, decode, encode
from logpipeline.extents import HOLE_BYTES_COUNTED_MAX, HOLES_MAX
from logpipeline.records import EpochRecord, Progress, Question
from logpipeline_collector import snapshots, sources
from logpipeline_collector.partition_writer import PartitionWriter
from logpipeline_collector.snapshot_schedule import write_snapshot
from logpipeline_collector.sources import Sources, decode_snapshot, encode_snapshot

GENERATIONS = ["a" * 16, "b" * 16, "c" * 16]
OFFSETS = st.sampled_from([0, 1, 9, HOLE_BYTES_COUNTED_MAX, wire.OFFSET_MAX - 9]) | st.integers(
    0, wire.OFFSET_MAX - 9
)
PREVIOUS = st.builds(wire.Previous, st.sampled_from(GENERATIONS), st.none() | OFFSETS)
# Sums that a long life leads to.
LIMITS = st.sampled_from([0, 9, COUNT_MAX - 9, COUNT_MAX])
CHECKSUMS = st.integers(0, 1).map(Checksum)


@st.composite
def batches(draw: st.DrawFn) -> wire.Batch:
    """Headers that readers accept, with numbers as large as those may be."""
    start, length = draw(OFFSETS), draw(st.integers(1, 9))
    lost = draw(st.sampled_from(["", "rotated"]))
    batch = wire.Batch(
        source=draw(st.sampled_from(["/a", "/b\udcff"])),
        generation=draw(st.sampled_from(GENERATIONS)),
        start=start,
        end=max(start + length, draw(OFFSETS)) if lost else start + length,
        lines=draw(st.integers(0, 1)),
        format="plain",
        first_time_ns=draw(OFFSETS),
        previous=draw(st.none() | PREVIOUS),
        checksums=draw(st.none() | st.builds(wire.Checksums, CHECKSUMS, CHECKSUMS)),
        begins=draw(st.booleans()),
        resend=draw(st.booleans()),
        lost=lost,
    )
    assert wire.decode_headers(wire.encode_headers(batch, "id")) == batch
    return batch


def loss(number: int) -> wire.Batch:
    """Return the loss of all bytes that a generation can have."""
    return wire.Batch(
        source="/a", generation=f"{number:016x}", start=0, end=wire.OFFSET_MAX, lines=0,
        format="plain", lost="rotated",
    )  # fmt: skip


def take(folder: Path, *taken: wire.Batch) -> PartitionWriter:
    """Return the files in *folder* once *taken* is committed there, as the next process opens
    them.
    """
    writer = Writer(opened(folder))
    for sequence, batch in enumerate(taken, 1):
        payload = b"" if batch.lost else b"x" * (batch.end - batch.start)
        with suppress(wire.BadMessage):
            writer.partition.take("h", batch, payload, sequence=sequence, time_ns=sequence)
    writer.sequence = len(taken)
    writer.commit()
    writer.partition.close()
    return opened(folder)


def check(folder: Path, *taken: wire.Batch) -> PartitionWriter:
    """Fail where what is stored after *taken* cannot be read, or reads as something else."""
    partition = take(folder, *taken)
    stored = partition.sink.sources()
    snapshot = decode_snapshot(partition.export_sources())
    record = replace(EPOCH, lost_bytes=partition.lost_bytes, missing_bytes=partition.missing_bytes)
    progress = replace(PROGRESS, sources=tuple(partition.asked("h", Question())))
    partition.close()

    assert snapshot == stored
    assert EpochRecord.decode(record.encode()) == record
    assert Progress.decode(progress.encode()).encode() == progress.encode()
    return partition


def test_losses_of_more_bytes_than_there_can_be_are_stored(tmp_path: Path) -> None:
    """A login of a node may name them. Its number stops at a limit, and nothing else does."""
    partition = check(tmp_path, *map(loss, range(5)))

    assert partition.lost_bytes == COUNT_MAX


def test_a_partition_has_as_many_sources_with_such_losses(tmp_path: Path) -> None:
    """Its sum stops there, too."""
    losses = [replace(loss(n), source=f"/{s}") for s in range(3) for n in range(3)]

    assert check(tmp_path, *losses).lost_bytes == COUNT_MAX


def test_holes_that_are_not_listed_any_more_are_counted_as_the_others_are() -> None:
    """A hole that is wider than any file counts nothing, also once it is closed."""
    known = NOTHING
    for number in range(HOLES_MAX + 3):
        start = (number + 1) * (HOLE_BYTES_COUNTED_MAX + 2)
        known = decide(known, replace(loss(0), start=start, end=start + 1, lost="")).after

    assert known.given_up == known.missing == 0


@given(st.lists(batches(), max_size=12), LIMITS, LIMITS)
def test_whatever_is_accepted_can_be_read_after_it_is_stored(
    taken: list[wire.Batch], lost: int, given_up: int
) -> None:
    """As what is known of a source, in a snapshot, in the epoch's record, and by shippers."""
    known = Sources()
    known.replace({("h", "/a"): NOTHING._replace(lost=lost, given_up=given_up)})
    for batch in taken:
        known.learn("h", batch, known.decide("h", batch))
    changed = {name: state for name, state in known.take_changes().items() if state}
    known.commit(1, changed)
    rows = [(json_text.dump(name), json_text.dump(encode(changed[name]))) for name in changed]
    progress = replace(PROGRESS, sources=tuple(known.asked("h", Question())))
    record = replace(EPOCH, missing_bytes=changed["h", "/a"].missing)

    assert decode_snapshot(encode_snapshot(rows)) == changed
    assert {decode(json_text.parse(text)) for _, text in rows} == set(changed.values())
    assert Progress.decode(progress.encode()).encode() == progress.encode()
    assert EpochRecord.decode(record.encode()) == record


def test_a_snapshot_that_its_reader_would_refuse_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the stream were trimmed up to it, and no successor knew what was written."""
    rows = [(json_text.dump(("h", f"/{number}")), "[0,[]]") for number in range(100)]
    size = len(zstd.decompress(encode_snapshot(rows)[4:], 1 << 20))
    monkeypatch.setattr(sources, "SNAPSHOT_BYTES_MAX", size)
    assert len(decode_snapshot(encode_snapshot(rows))) == len(rows)

    monkeypatch.setattr(sources, "SNAPSHOT_BYTES_MAX", size - 1)
    with pytest.raises(sources.BadSnapshot, match=f"{size} bytes"):
        encode_snapshot(rows)


@pytest.mark.parametrize("limit", ["CHUNKS_MAX", "SNAPSHOT_BYTES_MAX"])
async def test_what_cannot_be_stored_as_a_snapshot_ends_no_collector(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Nothing of it is published, and the partition goes on with the former one."""
    monkeypatch.setattr(snapshots, limit, 1)
    connection = SimpleNamespace(max_payload_bytes=snapshots.CHUNK_BYTES_MIN)

    async def nothing(*_: object) -> dict[str, Any]:
        return {"state": {}}

    js: Any = SimpleNamespace(connection=connection, call=nothing)
    store = snapshots.SnapshotStore(js, stream="S", subject="s", partition=0)
    large = snapshots.Snapshot(EPOCH.position, {}, bytes(2 * snapshots.CHUNK_BYTES_MIN))
    record = replace(EPOCH, snapshot=0)
    owned: Any = SimpleNamespace(partition=0, epoch=9, held=SimpleNamespace(record=record))

    async def snapshot(_: Executor) -> snapshots.Snapshot:
        return large

    async def too_large(_: Executor) -> snapshots.Snapshot:
        raise sources.BadSnapshot("too large")

    for made in (snapshot, too_large):
        owned.snapshot = made
        with ThreadPoolExecutor(1) as executor:
            assert await write_snapshot(store, owned, executor)


def learn(known: Sources, host: str, source: str, *, generation: int = 0, start: int = 0) -> None:
    """Let one byte come of a source, at *start*."""
    batch = replace(
        loss(generation), source=source, start=start, end=start + 1, lost="", first_time_ns=1
    )
    known.learn(host, batch, known.decide(host, batch))


def committed(known: Sources, number: int) -> int:
    """Commit what is known, and return how long a snapshot of it is, uncompressed."""
    known.commit(number, known.take_changes())
    rows = [
        (json_text.dump(name), json_text.dump(encode(state)))
        for name, state in known.committed.items()
    ]
    return len(zstd.decompress(encode_snapshot(rows)[4:], 1 << 30))


def test_a_host_with_long_names_makes_the_collector_forget_its_own_sources_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is known stays within its limit of bytes, so that a snapshot can be stored."""
    monkeypatch.setattr(sources, "SOURCES_BYTES_MAX", 100_000)
    known = Sources()
    for number in range(5):
        learn(known, "a", f"/{number}")
    for number in range(50):
        learn(known, "evil", f"{number}" + "\N{ROCKET}" * 1000, start=7)

    assert committed(known, 1) <= 100_000
    assert {source for host, source in known.committed if host == "a"} == {
        f"/{number}" for number in range(5)
    }
    assert known.forgotten == 50 - sum(host == "evil" for host, _ in known.committed)
    assert "evil" in {record.__dict__["host"] for record in caplog.records}
    assert "a" not in {record.__dict__.get("host") for record in caplog.records}
    # What they miss stays counted.
    assert known.missing_bytes == 50 * 7
    again = Sources()
    again.load(dict(known.committed), None)
    assert again.missing_bytes == 50 * 7


def test_the_number_of_sources_is_shared_among_hosts_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the host with the most gives way, the oldest first."""
    monkeypatch.setattr(sources, "SOURCES_MAX", 10)
    known = Sources()
    learn(known, "a", "/old")
    for number in range(40):
        learn(known, "evil", f"/{number}")
    committed(known, 1)

    assert ("a", "/old") in known.committed
    assert {source for host, source in known.committed if host == "evil"} == {
        f"/{number}" for number in range(31, 40)
    }


def test_old_generations_give_way_before_sources_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is rotated all the time takes no other log's place."""
    monkeypatch.setattr(sources, "SOURCES_BYTES_MAX", 30_000)
    known = Sources()
    learn(known, "a", "/idle")
    for number in range(250):
        learn(known, "a", "/busy", generation=number)
    committed(known, 1)

    assert set(known.committed) == {("a", "/idle"), ("a", "/busy")}
    assert known.committed["a", "/busy"].generations[-1].name == f"{249:016x}"
    assert known.forgotten


@given(st.lists(batches(), max_size=30))
def test_a_snapshot_takes_no_more_than_is_counted(taken: list[wire.Batch]) -> None:
    """The count is kept message by message, and equals that of all."""
    known, counted_anew = Sources(), Sources()
    for batch in taken:
        decision = known.decide("h", batch)
        if not decision.is_misfit:
            known.learn("h", batch, decision)
    size = committed(known, 1)
    counted_anew.load(dict(known.committed), None)

    assert size <= known.stored_bytes + 100
    assert known.stored_bytes == counted_anew.stored_bytes
