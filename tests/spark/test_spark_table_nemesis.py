"""Whatever is killed at a table, and whenever: no line is lost or there twice, and no query beside
it fails, misses a line, or sees one twice or one that was erased.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import own_modules
from faults.settings import is_soak, seeds
from logpipeline_spark.formats.choice import Format
from logpipeline_spark.formats.log import GRACE_HOURS
from logpipeline_spark.table.counts import MINUTES
from logpipeline_spark.table.files import LINES, ROLLUP_MINUTE, SUFFIX
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Upkeep
from logpipeline_spark.table.verify import verify
from spark_versions import need_jars
from tables import nemesis
from tables.actors import Place, rows_of
from tables.board import BATCH, IDXS, Facts, Row, complaints, row_of
from tables.nemesis import Order, Report
from tables.s3 import REGION, S3Server
from waiting import eventually

pytest_plugins = ["tables.s3_fixtures"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@dataclass(frozen=True, slots=True)
class Killer:
    """Has orders carried out by a *process*."""

    process: subprocess.Popen[str]

    def carry_out(self, order: Order) -> Report:
        """Return what became of *order*."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asdict(order)), file=self.process.stdin, flush=True)
        return Report(**json.loads(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    """A process that loads once what all that it forks need."""
    # Whoever is killed leaves temporary files, which go with the test's.
    folder = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(
        own_modules.command(nemesis.__name__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        env={
            **own_modules.environment(),
            "TMPDIR": str(folder),
            "PYTHONWARNINGS": "ignore::DeprecationWarning",
        },
    )
    with process:
        try:
            yield Killer(process)
        finally:
            # Whoever it has started is in its group.
            os.killpg(process.pid, signal.SIGKILL)


# 28 kills in all, and 60 with each of ten seeds in a soak. A round of an Iceberg table is long.
KILLS_BESIDE_SPARK = 20 if is_soak() else 12
MANY_OF_ICEBERG = [("iceberg", "disk", 16), ("iceberg", "bucket", 8)] if is_soak() else []


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"SEED={seed}")
@pytest.mark.parametrize(
    ("name", "where", "kills"),
    [
        pytest.param("delta", "disk", 4, marks=pytest.mark.smoke),
        pytest.param("iceberg", "disk", 4, marks=pytest.mark.smoke),
        ("delta", "disk, Spark", KILLS_BESIDE_SPARK),
        ("delta", "bucket", 8),
        *MANY_OF_ICEBERG,
    ],
)
async def test_no_kill_at_a_table_is_seen_by_its_readers(
    request: pytest.FixtureRequest,
    killer: Killer,
    tmp_path: Path,
    say: Callable[[str], None],
    name: Format,
    where: str,
    kills: int,
    seed: int,
) -> None:
    """Each query finds each line that was committed before it once, but for those that were meant
    to go, and none that is gone; so do all in the end, and nothing is left over.
    """
    place = place_of(request, tmp_path, name, where)

    report = killer.carry_out(Order(place, str(tmp_path), seed, kills))

    say(f"{sum(report.kills.values())} kills ({report.kills}), {report.queries}, {report.done}")
    assert report.ended == []
    assert report.faults == []
    assert sum(report.kills.values()) >= kills
    assert all(report.queries.values()), report.queries
    assert_holds_all(place, report)
    await assert_nothing_is_left(place)


WHOLE = [row_of(seq, idx) for seq in range(1, 2 * BATCH + 1) for idx in IDXS]
# Of the host of messages 3, 6, 9, … those up to 9 are erased, and those up to 30 are being erased;
# the first batch is known to be committed.
FACTS = Facts(BATCH, 0, 0, (30, 0, 0), (9, 0, 0), 0, 0)


def without(*seqs: int) -> list[Row]:
    """Return all rows but those of some messages."""
    return [row for row in WHOLE if row[2] not in seqs]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("found", "said"),
    [
        (without(3, 6, 9), []),
        (without(*range(3, 31, 3)), []),
        (without(3, 6, 9, *range(BATCH + 1, 2 * BATCH + 1)), []),
        (without(3, 6, 9) + WHOLE[:1], ["1 lines twice"]),
        (without(3, 6), ["1 messages that were removed are seen: [9]"]),
        (without(3, 6, 9, 2), ["lack lines: [2]"]),
        (without(3, 6, 9, 15), ["lack lines: [15]"]),
        (without(3, 6, 9, 2 * BATCH), [f"lack lines: [{2 * BATCH}]"]),
        (without(3, 6, 9)[1:], ["lack lines: [1]"]),
        ([*without(3, 6, 9)[1:], (*WHOLE[0][:5], "other")], ["1 rows that were never written"]),
        ([], [f"messages of {BATCH} lack lines"]),
    ],
)
def test_each_kind_of_fault_is_found_in_what_a_query_returns(
    found: list[Row], said: list[str]
) -> None:
    """Lines twice, removed, lacking, of a part of a batch or of an erasure, and strange ones."""
    told = complaints(found, FACTS, FACTS)

    assert len(told) == len(said), told
    assert all(part in text for part, text in zip(said, told, strict=True)), told


def place_of(request: pytest.FixtureRequest, folder: Path, name: Format, where: str) -> Place:
    """Return a place where there is no table yet."""
    if where != "bucket":
        has_spark = where == "disk, Spark"
        if has_spark:
            need_jars("delta")
        return Place(name, str(folder / "table"), str(folder), has_spark=has_spark)
    server: S3Server = request.getfixturevalue("server")
    url = server.storage(f"{folder.name}/table").url
    return Place(name, url, str(folder), server.endpoint, REGION, str(server.folder))


def assert_holds_all(place: Place, report: Report) -> None:
    """See by each reader that all lines are there that are to stay, once, and all counts."""
    facts = report.last
    assert facts.cut_meant == facts.cut_done
    assert facts.meant == facts.done
    expected = sorted(
        row_of(seq, idx)
        for seq in range(1, facts.committed + 1)
        for idx in IDXS
        if facts.stays(seq)
    )
    for reader, read in place.readers.items():
        found = rows_of(read(lambda: None))
        assert complaints(found, facts, facts) == [], reader
        assert sorted(found) == expected, reader
    assert verify(place.storage, place.new_logs()).problems == ()
    counted = pa.concat_tables(
        tables(place.storage, files(place.new_logs(), area=ROLLUP_MINUTE), MINUTES)
    )
    assert pc.sum(counted["lines"]).as_py() == facts.committed * len(IDXS)


async def assert_nothing_is_left(place: Place) -> None:
    """See that files that no version needs any more go in time, and no others."""
    storage = place.storage
    if isinstance(storage, LocalStorage):
        # Delta's library looks at its own clock.
        for path in Path(storage.url).rglob(f"*{SUFFIX}"):
            old = path.stat().st_mtime - GRACE_HOURS * 3600
            os.utime(path, (old, old))
    later = datetime.now(UTC) + timedelta(hours=2 * GRACE_HOURS)

    def is_clean() -> bool:
        Upkeep(storage, place.new_logs()).clean(later)
        needed = {entry.path for entry in files(place.new_logs())}
        stored = {each.path for each in storage.list(LINES) if "/dt=" in each.path}
        assert stored >= needed
        # How old an object of a bucket is, nobody else says.
        is_aged = place.format == "iceberg" or isinstance(storage, LocalStorage)
        return stored == needed or not is_aged

    await eventually(is_clean, what="no file that nobody needs")
    assert verify(storage, place.new_logs()).problems == ()
