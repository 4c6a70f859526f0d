"""Partial counts of many batches become few files, and add up to what they were; they stay when
lines go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from logpipeline_spark.errors import Damaged
from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats.delta import _TYPES
from logpipeline_spark.formats.log import AREAS
from logpipeline_spark.lines.schema import LINES, TYPES
from logpipeline_spark.table import counts
from logpipeline_spark.table.compaction import Merge, Sizes
from logpipeline_spark.table.counts import LATE_MAX, MINUTES, SOURCES, added
from logpipeline_spark.table.files import LINES as LINES_AREA
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileEntry
from logpipeline_spark.table.scan import files as files_of
from logpipeline_spark.table.scan import tables
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits, Upkeep
from logpipeline_spark.table.verify import verify
from tables.erased import age
from tables.made import BEGIN, counted_batch, logs, opened, upkeep

SOON = BEGIN + timedelta(hours=5)
OVER = BEGIN + timedelta(days=4)
KINDS = ((ROLLUP_MINUTE, MINUTES), (ROLLUP_SOURCE, SOURCES))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


@pytest.fixture
def table(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """A table of small batches, over three hours."""
    monkeypatch.setattr(counts, "ALIKE_MIN", 4)
    table = opened(storage)
    for first in range(1, 200, 25):
        counted_batch(table, storage, first, first + 24)
    return upkeep(storage)


def files(storage: LocalStorage, area: str = LINES_AREA) -> list[FileEntry]:
    """Return the files of *area* that count."""
    return files_of(logs(storage), area=area)


def counted(storage: LocalStorage, area: str, schema: pa.Schema) -> list[dict[str, object]]:
    """Return the counts of *area*, each group once, as whoever adds them up sees them."""
    return list(added(tables(storage, files(storage, area=area), schema), schema).to_pylist())


def test_counts_add_up_to_what_they_were(storage: LocalStorage, table: Upkeep) -> None:
    """While their day goes on, and when it is over; each group is there once in the end."""
    before = [counted(storage, area, schema) for area, schema in KINDS]

    table.compact(SOON)
    soon = [len(files(storage, area=area)) for area, _ in KINDS]
    assert [counted(storage, area, schema) for area, schema in KINDS] == before
    table.compact(OVER)

    assert all(count < 8 for count in soon)
    for (area, schema), expected in zip(KINDS, before, strict=True):
        (entry,) = files(storage, area=area)
        assert pa.concat_tables(tables(storage, [entry], schema)).to_pylist() == expected
        assert counts.due([entry], OVER) == []
    assert verify(storage, logs(storage)).is_well


def test_counts_outside_the_times_of_the_log_are_not_left_out(
    storage: LocalStorage, table: Upkeep
) -> None:
    """Nothing is merged where the log says less of a file than it holds."""
    first, *others = files(storage, area=ROLLUP_MINUTE)
    short = replace(first, last_us=first.first_us - 3 * counts.WINDOW_US, first_us=0)
    merge = Merge("rollup/minute/dt=2026-11-21", (replace(short, first_us=short.last_us), *others))

    with pytest.raises(AssertionError, match="are committed"):
        counts.write_summed(storage, merge, MINUTES, sizes=Sizes())


def test_counts_of_a_day_are_written_a_few_times_only() -> None:
    """Files that differ in size are not added up together, so that large ones are left alone."""
    small = [entry(f"{number}", 900) for number in range(counts.ALIKE_MIN)]
    large = [entry(f"large-{number}", 900_000) for number in range(counts.ALIKE_MIN - 1)]
    (merge,) = counts._of_day(f"{ROLLUP_MINUTE}/dt=2026-11-21", small + large, SOON)

    assert set(merge.sources) == set(small)


def test_what_comes_late_is_added_once_it_is_worth_it() -> None:
    """A day that is over becomes one file, which is not written again for each small one that comes
    weeks later; when no more can come, all is one.
    """
    folder, day = f"{ROLLUP_MINUTE}/dt=2026-11-21", timedelta(days=1)
    whole, late = entry("whole", 8_000), [entry(f"{number}", 100) for number in range(10)]
    last = BEGIN + LATE_MAX + 2 * day

    def merged(entries: list[FileEntry], now: datetime) -> list[int]:
        return [len(merge.sources) for merge in counts._of_day(folder, entries, now)]

    assert merged(late, OVER) == [10]
    assert merged([whole, *late[:9]], OVER) == []
    assert merged([whole, *late], OVER) == [11]
    assert merged([whole, late[0]], last) == [2]
    assert merged([whole], last) == []


def entry(name: str, size_bytes: int) -> FileEntry:
    """Return a file of counts."""
    return FileEntry(f"{ROLLUP_MINUTE}/dt=2026-11-21/{name}", 1, size_bytes, 0, 0)


def test_an_hour_of_counts_is_in_memory_at_once(
    storage: LocalStorage, table: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the time is that files hold."""
    sizes = []

    def watched(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
        sizes.append(sum(part.num_rows for part in parts))
        return added(parts, schema)

    monkeypatch.setattr(counts, "added", watched)
    table.compact(OVER)

    # 200 messages, one a minute: of an hour there are 60 minutes with at most two levels.
    assert max(sizes) <= 120
    assert sum(sizes) > 200


def test_old_lines_go_and_their_counts_stay(storage: LocalStorage, table: Upkeep) -> None:
    """By age and by bytes, which are those of lines."""
    before = [counted(storage, area, schema) for area, schema in KINDS]
    table.retain(OVER, Limits(age=timedelta(hours=1)))

    assert files(storage) == []
    assert [counted(storage, area, schema) for area, schema in KINDS] == before


def test_bytes_that_are_kept_are_those_of_lines(storage: LocalStorage, table: Upkeep) -> None:
    """Counts neither use them up nor go when they are."""
    size_bytes = sum(entry.bytes for entry in files(storage))

    assert table.retain(OVER, Limits(total_bytes=size_bytes)) == []
    gone = table.retain(OVER, Limits(total_bytes=size_bytes - 1))
    assert gone
    assert all(entry.path.startswith("lines/dt=2026-11-21/hour=10/") for entry in gone)


def test_counts_that_cannot_be_read_are_left_as_they_are(
    storage: LocalStorage, table: Upkeep
) -> None:
    """What is damaged is named, and nothing is taken away."""
    first = files(storage, area=ROLLUP_MINUTE)[0]
    (Path(storage.url) / first.path).write_bytes(bytes(first.bytes))
    before = [each.path for each in files(storage, area=ROLLUP_MINUTE)]
    with pytest.raises(Damaged, match=r"cannot be read.*run verify"):
        table.compact(OVER)

    assert [each.path for each in files(storage, area=ROLLUP_MINUTE)] == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_logs_of_counts_are_shortened_like_that_of_lines(
    storage: LocalStorage, table: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold nothing that a checkpoint lacks."""
    monkeypatch.setattr(delta_module, "CHECKPOINT_EVERY", 2)
    table.clean(datetime.now(UTC))
    age(storage, logs(storage), hours=48)
    writer = opened(storage)
    for first in (201, 226):
        counted_batch(writer, storage, first, first + 24)
    before = [counted(storage, area, schema) for area, schema in KINDS]

    table.clean(datetime.now(UTC))

    for area in AREAS:
        commits = (Path(storage.url) / area / "_delta_log").glob("*.json")
        assert min(int(commit.stem) for commit in commits) > 0
    assert [counted(storage, area, schema) for area, schema in KINDS] == before
    counted_batch(opened(storage), storage, 251, 275)
    assert verify(storage, logs(storage)).problems == ()


def test_delta_knows_each_type_of_a_line() -> None:
    """A column that is added needs a type there; Delta itself is not everywhere to tell."""
    asked = pa.schema(list(TYPES.items()))
    schemas = (LINES, MINUTES, SOURCES, asked)
    assert {field.type for schema in schemas for field in schema} <= set(_TYPES)
