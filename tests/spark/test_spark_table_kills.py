"""A writer that dies between any two steps leaves a table that readers see rightly at once, and
that the next writer finishes: each line once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage, Storage
from logpipeline_spark.table.verify import verify
from tables.crash import KEPT_FROM, LAST
from tables.made import Key, keys, logs
from tables.s3 import S3Server
from tables.writers import Writers, running_writers

pytest_plugins = ["tables.s3_fixtures"]

SIGKILLED = -9
ROUNDS = 4
# One sentence for whoever started the second one.
REFUSED = re.compile(r"(Held|Overtaken): .* (stop|let|start) .*\.$")
KEYS = pa.schema([SCHEMA.field(name) for name in ("stream", "incarnation", "seq", "idx")])
# How often each place is passed: early, in the middle of a batch, and in the upkeep.
PLACES = {
    "table.begun": (1,),
    "table.file-written": (1, 2, 6, 11, 12),
    "table.state-written": (1, 4),
    "table.committed": (1, 2, 5, 8, 14, 20, 22, 23),
    "table.batch-committed": (1, 6),
    "table.counted": (1, 2, 11),
    "table.merge-written": (1, 3),
    "table.merge-committed": (1, 2),
    "table.file-removed": (2, 4),
}
# Of each place the last time is what `make test` runs.
KILLS = [
    pytest.param(place, count, marks=[pytest.mark.smoke] * (count == counts[-1]))
    for place, counts in PLACES.items()
    for count in counts
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Writers, Writers]]:
    """Two that have writers forked, so that two can write at once."""
    folder = tmp_path_factory.mktemp("writers")
    with running_writers(folder / "one") as one, running_writers(folder / "two") as two:
        yield one, two


@pytest.fixture(scope="module")
def writers(pair: tuple[Writers, Writers]) -> Writers:
    return pair[0]


@pytest.mark.parametrize(("place", "count"), KILLS)
def test_a_kill_on_disk_costs_and_doubles_nothing(
    writers: Writers, tmp_path: Path, place: str, count: int
) -> None:
    """Whoever reads while the writer is dead sees no line twice; the next one finishes all."""
    storage = LocalStorage(tmp_path / "table")
    kill_and_look(writers, storage, {}, f"{place}:{count}")


@pytest.mark.parametrize(
    ("place", "count"), [(place, counts[-1]) for place, counts in PLACES.items()]
)
def test_a_kill_beside_a_bucket_costs_and_doubles_nothing(
    writers: Writers, server: S3Server, tmp_path: Path, place: str, count: int
) -> None:
    """The same where nothing can be renamed."""
    storage = server.storage(tmp_path.name)
    kill_and_look(writers, storage, server.environment(), f"{place}:{count}")


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_of_two_writers_at_once_one_goes_on_and_the_other_says_so(
    request: pytest.FixtureRequest, pair: tuple[Writers, Writers], tmp_path: Path, place: str
) -> None:
    """Two processes that think the same table theirs damage nothing."""
    environment: dict[str, str] = {}
    storage: Storage = LocalStorage(tmp_path / "table")
    if place == "bucket":
        server: S3Server = request.getfixturevalue("server")
        storage, environment = server.storage(tmp_path.name), server.environment()
    for _ in range(ROUNDS):
        for each in pair:
            each.begin(storage.url, environment)
        ends = [each.end() for each in pair]

        assert 0 in ends, [each.said for each in pair]
        for end, text in zip(ends, [each.said for each in pair], strict=True):
            assert end == 0 or REFUSED.search(text.splitlines()[-1]), text
        assert by_log(storage) == keys(KEPT_FROM, LAST)
        assert verify(storage, logs(storage)).problems == ()
        storage.delete([stored.path for stored in storage.list("")])


def kill_and_look(
    writers: Writers, storage: Storage, environment: dict[str, str], place: str
) -> None:
    """Kill a writer at *place*; look, go on, look again."""
    writers.begin(storage.url, environment, place)
    assert writers.end() == SIGKILLED, writers.said
    committed = by_log(storage)
    assert committed == keys(committed[0][2], committed[-1][2]) if committed else True
    assert committed == [] or committed[0][2] in (1, KEPT_FROM)

    writers.begin(storage.url, environment)
    assert writers.end() == 0, writers.said

    assert by_log(storage) == keys(KEPT_FROM, LAST)
    assert verify(storage, logs(storage)).problems == ()
    assert len(list(storage.list("_table/state"))) <= 3


def by_log(storage: Storage) -> list[Key]:
    """Read what is committed."""
    entries = files(logs(storage))
    return sorted(key for part in tables(storage, entries, KEYS) for key in rows(part))


def rows(table: pa.Table) -> list[Key]:
    """Return the keys of a table's rows."""
    return list(zip(*(table[name].to_pylist() for name in KEYS.names), strict=True))
