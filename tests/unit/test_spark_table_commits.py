"""A table's history: each batch once, without holes, by one writer, and damage is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table import local
from logpipeline_spark.table.commit import Change, Range, commit_path
from logpipeline_spark.table.lease import Lease, LeaseHeld, LeaseLost
from logpipeline_spark.table.local import LocalStorage
from logpipeline_spark.table.manifest import Manifest, commit_numbers
from logpipeline_spark.table.owner import Owner
from logpipeline_spark.table.packed import Damaged
from logpipeline_spark.table.reading import files, tables
from logpipeline_spark.table.snapshot import WrongRange
from logpipeline_spark.table.table import Table
from tables_made import BEGIN, LIFE, OWNER, STREAM, batch, keys, opened, table_files, write

LONG_AFTER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def keys_of(storage: LocalStorage) -> list[tuple[object, ...]]:
    """Read all keys by the manifest, in their order."""
    schema = pa.schema([LINES.field(name) for name in ("stream", "incarnation", "seq", "idx")])
    found = pa.concat_tables(
        [schema.empty_table(), *tables(storage, files(storage), schema)]
    ).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_what_is_committed_is_read_with_its_state(storage: LocalStorage) -> None:
    """A batch's files, range and state are there for the next process."""
    table = opened(storage)
    batch(table, storage, "0", 1, 150)
    table.close()

    after = opened(storage, holder="another")

    assert keys_of(storage) == keys(1, 150)
    assert after.snapshot.end_of(STREAM) == Range(LIFE, 1, 150)
    assert after.snapshot.batch == "0"
    assert after.read_state() == {STREAM: b"150"}
    hours = sorted(entry.path.split("/")[2] for entry in files(storage))
    assert hours == ["hour=10", "hour=11", "hour=12"]


def test_a_batch_that_is_repeated_changes_nothing(storage: LocalStorage) -> None:
    """Spark repeats a batch whose end it did not see; its files take their former places."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    before = table_files(tmp := Path(storage.url))
    number = table.snapshot.number

    assert batch(table, storage, "0", 1, 10) is False
    assert table.snapshot.number == number
    assert table_files(tmp) == before
    assert keys_of(storage) == keys(1, 10)


def test_a_range_goes_on_where_the_last_one_ended(storage: LocalStorage) -> None:
    """Doubled lines and lines left out are refused; a hole that is named is kept as one."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)

    with pytest.raises(WrongRange, match="start at 11"):
        batch(table, storage, "1", 10, 20)
    with pytest.raises(WrongRange, match="leaves out"):
        batch(table, storage, "1", 12, 20)
    skipped = frozenset([STREAM])
    table.commit_batch("1", {STREAM: Range(LIFE, 12, 20)}, write(storage, 12, 20), skipped=skipped)
    assert table.snapshot.covered[STREAM] == (Range(LIFE, 1, 10), Range(LIFE, 12, 20))


def test_a_stream_that_began_anew_uses_sequences_again(storage: LocalStorage) -> None:
    """A new incarnation's ranges are its own; the former one does not come back."""
    table = opened(storage)
    table.commit_batch("0", {STREAM: Range("1r0", 1, 100)}, [])
    table.commit_batch("1", {STREAM: Range("1r1", 81, 90)}, [])

    assert table.snapshot.end_of(STREAM) == Range("1r1", 81, 90)
    with pytest.raises(WrongRange, match="as it is now"):
        table.commit_batch("2", {STREAM: Range("1r0", 101, 102)}, [])


def test_reading_is_bounded_however_long_the_history(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of many commits is read from the last whole list, and old commits go away."""
    monkeypatch.setattr("logpipeline_spark.table.manifest.WHOLE_EVERY", 8)
    monkeypatch.setattr("logpipeline_spark.table.manifest.COMMITS_KEPT", 20)
    table = opened(storage)
    for seq in range(1, 51):
        ranges = {STREAM: Range(LIFE, seq, seq)}
        table.commit_batch(str(seq), ranges, [], state={STREAM: b"%d" % seq})
    table.prune()
    assert sorted(commit_numbers(storage)) == list(range(30, 51))

    # Reading begins at 48, the last one that carries the whole list: what is before is not asked.
    storage.delete(commit_path(number) for number in range(30, 48))

    assert Manifest.read(storage).snapshot == table.snapshot
    assert table.read_state() == {STREAM: b"50"}
    assert len(list(storage.list("_table/state"))) == 1


def test_files_are_found_by_time(storage: LocalStorage) -> None:
    """A reader that asks for a time gets the files of that time alone."""
    table = opened(storage)
    batch(table, storage, "0", 1, 150)

    found = files(storage, since=BEGIN.replace(hour=11), until=BEGIN.replace(hour=12))

    assert [entry.path.split("/")[2] for entry in found] == ["hour=11"]


@pytest.mark.parametrize("damage", ["cut", "bit", "gone", "renamed"])
def test_a_damaged_manifest_is_told_and_nothing_is_touched(
    storage: LocalStorage, damage: str
) -> None:
    """One sentence says what to do; no file is taken for a leftover."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    batch(table, storage, "1", 11, 20)
    table.close()
    path = Path(storage.url) / commit_path(1)
    raw = path.read_bytes()
    if damage == "cut":
        path.write_bytes(raw[:-20])
    elif damage == "bit":
        path.write_bytes(raw.replace(b'"rows":20', b'"rows":21'))
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes((Path(storage.url) / commit_path(2)).read_bytes())
    before = table_files(Path(storage.url))

    with pytest.raises(Damaged, match=r"[.]$") as told:
        opened(storage)

    assert path.name in str(told.value)
    assert table_files(Path(storage.url)) == before


def test_state_that_is_missing_is_told(storage: LocalStorage) -> None:
    """Without it a writer would read again what it has."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    storage.delete(table.snapshot.state.values())

    with pytest.raises(Damaged, match="is missing: bring _table back"):
        table.read_state()


def test_files_without_a_manifest_are_never_taken_for_leftovers(storage: LocalStorage) -> None:
    """Who lost _table is told so, and keeps all lines."""
    write(storage, 1, 10)

    with pytest.raises(Damaged, match="no manifest"):
        opened(storage)

    assert len(table_files(Path(storage.url))) == 1


def test_a_start_takes_away_what_was_never_committed(storage: LocalStorage) -> None:
    """Leftovers of a batch go, files of strangers stay, and both are reported."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    (left,) = write(storage, 11, 20)
    storage.write("lines/theirs.parquet", b"")
    table.close()

    after = opened(storage)

    assert after.repaired.stale == (left.path,)
    assert after.repaired.strange == ("lines/theirs.parquet",)
    assert keys_of(storage) == keys(1, 10)
    assert storage.read("lines/theirs.parquet") == b""


def test_another_pipeline_is_refused(storage: LocalStorage) -> None:
    """A path belongs to the pipeline that signed it, in its format."""
    opened(storage).close()

    with pytest.raises(Refused, match="default/demo's: give other/one a path of its own"):
        Table.open(storage, Owner("other/one"), holder="test", schema=LINES)
    with pytest.raises(Refused, match="format parquet"):
        Table.open(storage, dataclasses.replace(OWNER, format="delta"), holder="test", schema=LINES)


def test_columns_may_come_and_never_go(storage: LocalStorage) -> None:
    """Old files read with a new column as null; a version that lacks one is told."""
    older = pa.schema([field for field in LINES if field.name != "resent"])
    table = Table.open(storage, OWNER, holder="test", schema=older)
    table.close()
    opened(storage).close()

    with pytest.raises(Refused, match=r"column resent.*newer version"):
        Table.open(storage, OWNER, holder="test", schema=older)
    place = LINES.get_field_index("idx")
    other = LINES.set(place, pa.field("idx", pa.int64()))
    with pytest.raises(Refused, match="column idx is int32"):
        Table.open(storage, OWNER, holder="test", schema=other)


class Clock:
    """Waiting that does something meanwhile instead of taking time."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile
        self.waited_s: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        for step in self.meanwhile:
            step()


def test_a_living_writer_keeps_the_lease(storage: LocalStorage) -> None:
    """Whoever sees the lease renewed while it waits is refused, and told by whom it is held."""
    first = Lease.take(storage, "first")
    clock = Clock(first.renew)

    with pytest.raises(LeaseHeld, match="is written by first: stop it"):
        Lease.take(storage, "second", wait=clock.wait)

    first.fence.check(storage)


def test_a_silent_writer_loses_the_lease_and_notices(storage: LocalStorage) -> None:
    """The next one takes it after a wait; the former one can neither renew nor let tasks go on."""
    first = Lease.take(storage, "first")
    clock = Clock()
    second = Lease.take(storage, "second", wait=clock.wait)

    assert clock.waited_s == [20.0]
    with pytest.raises(LeaseLost):
        first.renew()
    with pytest.raises(LeaseLost):
        first.fence.check(storage)
    second.renew()


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda table, storage: batch(table, storage, "3", 3, 3), id="write"),
        pytest.param(lambda table, storage: table.compact(LONG_AFTER), id="compact"),
    ],
)
def test_who_is_overtaken_while_a_file_is_shown_says_so(
    storage: LocalStorage,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Table, LocalStorage], object],
) -> None:
    """The next writer takes away what it finds begun: that is no fault of the disk."""
    first = opened(storage)
    for number in (1, 2):
        batch(first, storage, str(number), number, number)

    def overtake(place: str) -> None:
        monkeypatch.setattr(local, "reach", lambda place: None)
        if place == "table.file-written":
            opened(storage)

    monkeypatch.setattr(local, "reach", overtake)
    with pytest.raises(LeaseLost, match="written by another process now"):
        work(first, storage)


def test_a_released_lease_and_ones_own_are_taken_at_once(storage: LocalStorage) -> None:
    """A clean restart and a holder that comes back under its name do not wait."""
    clock = Clock()
    Lease.take(storage, "first").release()
    Lease.take(storage, "second", wait=clock.wait)
    Lease.take(storage, "second", wait=clock.wait)

    assert clock.waited_s == []


def test_of_two_that_wait_one_wins(storage: LocalStorage) -> None:
    """Both see a silent holder; the one that comes second is told."""
    Lease.take(storage, "gone")
    clock = Clock(lambda: Lease.take(storage, "third", wait=lambda _: None))

    with pytest.raises(LeaseHeld, match="third"):
        Lease.take(storage, "second", wait=clock.wait)


def test_a_writer_that_slept_cannot_commit(storage: LocalStorage) -> None:
    """What it wrote is not committed, the new writer's table is whole, and nothing is doubled."""
    sleeper = opened(storage, holder="same")
    batch(sleeper, storage, "0", 1, 10)
    left = write(storage, 11, 20)
    successor = opened(storage, holder="same")
    batch(successor, storage, "1", 11, 15)

    with pytest.raises(Refused, match="another process now"):
        sleeper.commit_batch("1", {STREAM: Range(LIFE, 11, 20)}, left)

    assert keys_of(storage) == keys(1, 15)


def test_a_commit_that_was_overtaken_between_check_and_put_is_refused(
    storage: LocalStorage,
) -> None:
    """Even where the lease was asked a moment too early, the manifest takes one writer alone."""
    sleeper = opened(storage, holder="same")
    change = {STREAM: Range(LIFE, 1, 10)}
    manifest = Manifest.read(storage)
    sleeper.commit_batch("0", change, [])

    with pytest.raises(Refused, match="meanwhile: let one pipeline alone"):
        manifest.commit(Change("batch", batch="0"), epoch=1, writer="w", time_us=0)
