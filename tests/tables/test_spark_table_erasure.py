"""Lines are erased for good: for each reader, beside batches and merges, and whatever is killed."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry

from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats import iceberg as iceberg_module
from logpipeline_spark.formats.log import GRACE_HOURS, Overtaken
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table import erasure as erasure_module
from logpipeline_spark.table import storage as local_module
from logpipeline_spark.table.erasure import Condition, Erasure
from logpipeline_spark.table.files import FileName, Range
from logpipeline_spark.table.keys import groups_of
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.state import WrongRange
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits
from logpipeline_spark.table.word_filters import are_there
from logpipeline_spark.table.writer import TableWriter
from tables.erased import FORMATS, Lake, Row, mixed, rows_of
from tables.made import BEGIN, LIFE, STREAM, kept, lines, table_files, upkeep

OVER = BEGIN + timedelta(days=1)
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
ROUNDS = 8

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=sorted(FORMATS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return FORMATS[request.param](tmp_path)


@pytest.fixture
def table(lake: Lake) -> TableWriter:
    """A table of two batches over three hours."""
    table = lake.open()
    lake.batch(table, 1, 40)
    lake.batch(table, 41, 150)
    return table


def is_web1(row: Row) -> bool:
    return bool(row["host"] == "web1")


BY_NAME: dict[str, tuple[dict[str, Any], Callable[[Row], bool]]] = {
    "host": ({"host": "web1"}, is_web1),
    "namespace": ({"namespace": "shop"}, lambda row: row["namespace"] == "shop"),
    "a glob": ({"source": "/var/*1/app*"}, lambda row: row["host"] in ("web1", "db1")),
    "a path with a bracket": (
        {"source": "/var/log/db1/app[1].log"},
        lambda row: row["source"] == "/var/log/db1/app[1].log",
    ),
    "a time": (
        {
            "host": "web1",
            # At both there is a line of this host.
            "since": BEGIN + timedelta(minutes=29),
            "until": BEGIN + timedelta(minutes=92),
        },
        lambda row: is_web1(row) and 29 <= row["seq"] - 1 < 92,
    ),
    "all of several": (
        {"host": "web2", "pod": "cart-1", "container": "cart", "namespace": "other"},
        lambda row: False,
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_meant_goes_and_all_else_stays(lake: Lake, table: TableWriter, name: str) -> None:
    """For each reader of the format: every other row with all its columns, and lines without a name
    as well.
    """
    said, is_meant = BY_NAME[name]

    proof = lake.erasure(**said).erase(NOW)

    expected = rows_of(1, 150, without=is_meant)
    assert lake.rows() == expected
    assert proof.lines == 300 - len(expected)
    gone = [row["line"] for row in rows_of(1, 150, without=lambda row: not is_meant(row))]
    assert proof.text_bytes == sum(len(line.encode()) for line in gone)
    assert lake.problems == ()


def test_an_erasure_is_one_version_that_a_batch_follows(lake: Lake, table: TableWriter) -> None:
    """The writer goes on as if nothing had been, and its next start as well."""
    before = len(list(lake.new_logs()["lines"].history()))

    proof = lake.erasure(host="web1").erase(NOW)

    assert len(list(lake.new_logs()["lines"].history())) == before + 1
    assert proof.version_before != proof.version_after == lake.erasure(host="web1").plan().version
    lake.batch(table, 151, 160)
    lake.batch(lake.open(), 161, 170)
    expected = rows_of(1, 150, without=is_web1) + rows_of(151, 170)
    assert lake.rows() == expected
    assert lake.problems == ()


def test_a_file_without_such_lines_is_not_touched(lake: Lake, table: TableWriter) -> None:
    """Of the hours that are asked for alone files are written again; a file whose lines all go is
    replaced by none.
    """
    name = FileName(STREAM, LIFE, 151, 152, table.writer)
    rows = mixed(151, 152)
    host = LINES.get_field_index("host")
    rows = rows.set_column(host, "host", pa.array(["other"] * rows.num_rows))
    added = write_range(lake.storage, [rows], name)
    table.commit_batch("other", {STREAM: Range(LIFE, 151, 152)}, added, kept(table))

    proof = lake.erasure(host="other").erase(NOW)

    assert [each.found.entry.path for each in proof.replaced] == [added[0].path]
    assert proof.replaced[0].by == ()
    assert lake.rows() == rows_of(1, 150)


def test_new_files_are_found_by_time_and_can_be_merged(lake: Lake, table: TableWriter) -> None:
    """They lie in the folder of their hour, have plain types, and each group of rows is of one
    stream.
    """
    name = FileName("LOGS_1", LIFE, 1, 40, table.writer)
    added = write_range(lake.storage, [lines(1, 40, stream="LOGS_1")], name)
    table.commit_batch("other", {"LOGS_1": Range(LIFE, 1, 40)}, added, kept(table, "LOGS_1"))
    upkeep(lake.storage, lake.new_logs()).compact(OVER)

    proof = lake.erasure(host="web1").erase(NOW)

    for each in proof.replaced:
        [entry] = each.by
        assert entry.path.rpartition("/")[0] == each.found.entry.path.rpartition("/")[0]
        assert pq.ParquetFile(Path(lake.storage.url) / entry.path).schema_arrow.equals(LINES)
        assert len({group.life for group in groups_of(lake.storage, entry.path)}) <= 2
    # As if a late batch had come to each hour.
    lake.batch(table, 151, 152)
    assert upkeep(lake.storage, lake.new_logs()).compact(OVER) != []
    own = [row for row in lake.rows() if row["stream"] == STREAM]
    assert own == rows_of(1, 152, without=lambda row: is_web1(row) and row["seq"] <= 150)
    assert len(lake.rows()) == len(own) + 80
    assert lake.problems == ()


def test_each_changed_bit_of_a_new_file_is_found(lake: Lake) -> None:
    """Its pages have checksums, as those of batches have."""
    table = lake.open()
    rows = mixed(1, 59)
    # Nothing that could be compressed, where another bit is another letter and no more.
    texts = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(rows.num_rows)]
    rows = rows.set_column(LINES.get_field_index("line"), "line", pa.array(texts))
    added = write_range(lake.storage, [rows], FileName(STREAM, LIFE, 1, 59, table.writer))
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 59)}, added, kept(table))
    [replaced] = lake.erasure(host="web1").erase(NOW).replaced
    file = Path(lake.storage.url) / replaced.by[0].path
    whole = file.read_bytes()
    with pq.ParquetFile(file) as parquet:
        column = parquet.metadata.row_group(0).column(LINES.get_field_index("line"))
    end = column.data_page_offset + column.total_compressed_size
    for at_byte in range(end - 1, end - column.total_compressed_size // 2, -97):
        changed = bytearray(whole)
        changed[at_byte] ^= 1
        file.write_bytes(changed)

        assert any(replaced.by[0].path in problem for problem in lake.problems), at_byte


def test_a_batch_that_is_repeated_brings_nothing_back(lake: Lake, table: TableWriter) -> None:
    """Neither by the same writer, nor by one whose batch was committed behind its back: ranges and
    transactions say what is in the table, not files.
    """
    former = replace(table.state)
    lake.erasure(host="web1").erase(NOW, has_grace=False)
    expected = rows_of(1, 150, without=is_web1)

    with pytest.raises(WrongRange):
        lake.batch(table, 41, 150)
    assert lake.rows() == expected
    successor = lake.open()
    assert successor.state.cover == former.cover
    with pytest.raises((Overtaken, WrongRange)):
        lake.batch(table, 151, 160)

    assert lake.rows() == expected
    lake.batch(successor, 151, 160)
    assert lake.rows() == expected + rows_of(151, 160)
    assert lake.problems == ()


def test_beside_a_batch_both_are_done(
    lake: Lake, table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed while files are written again is in the table, and in nobody's way."""
    at(monkeypatch, "table.erasure-written", lambda: lake.batch(table, 151, 160))

    lake.erasure(host="web1").erase(NOW)

    assert lake.rows() == rows_of(1, 150, without=is_web1) + rows_of(151, 160)
    lake.batch(table, 161, 170)
    assert lake.problems == ()


def test_a_merge_that_was_faster_is_waited_for(
    lake: Lake, table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the lines are in other files, and go from these; what was written in vain has none of
    them, and goes with a clean-up.
    """
    other = upkeep(lake.storage, lake.new_logs())
    at(monkeypatch, "table.erasure-written", lambda: other.compact(OVER))

    proof = lake.erasure(host="web1").erase(NOW)

    assert lake.rows() == rows_of(1, 150, without=is_web1)
    assert any("compacted-" in each.found.entry.path for each in proof.replaced)
    assert lake.problems == ()
    lake.age(hours=GRACE_HOURS + 1)
    lake.new_logs()["lines"].drop([each.path for each in lake.new_logs()["lines"].former()])
    assert b"web1" not in lake.stored_text()
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    there = {entry.path for entry in lake.new_logs()["lines"].files()}
    assert table_files(Path(lake.storage.url)) == there


@pytest.mark.parametrize("has_grace", [True, False])
def test_a_merge_that_was_slower_brings_nothing_back(
    lake: Lake, table: TableWriter, monkeypatch: pytest.MonkeyPatch, has_grace: bool
) -> None:
    """It read the lines before, and is not committed. The proof names what it wrote until that is
    removed, and which words are in it is not kept.
    """
    from logpipeline_spark.table import upkeep as upkeep_module

    proofs = []

    def reach(place: str) -> None:
        if place == "table.merge-written":
            monkeypatch.undo()
            proofs.append(lake.erasure(host="web1").erase(NOW, has_grace=has_grace))

    monkeypatch.setattr(upkeep_module, "reach", reach)
    upkeep(lake.storage, lake.new_logs()).compact(OVER, merges_max=1)

    assert lake.rows() == rows_of(1, 150, without=is_web1)
    assert lake.problems == ()
    in_vain = [each for each in proofs[0].remaining if "compacted-" in each.path]
    assert in_vain
    assert has_grace or tuple(in_vain) == proofs[0].remaining
    assert not any(are_there(lake.storage, each.path) for each in in_vain)
    lake.age(hours=GRACE_HOURS + 1)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert lake.erasure(host="web1").erase(NOW).remaining == ()
    assert b"web1" not in lake.stored_text()


def test_a_name_with_a_bracket_is_that_name_alone(lake: Lake) -> None:
    """As a range of a glob it would be the name of another source as well."""
    table = lake.open()
    lake.batch(table, 1, 40)
    other = {"source": "/var/log/db1/app1.log"}
    rows = [row | other if row["idx"] else row for row in mixed(41, 60).to_pylist()]
    added = write_range(
        lake.storage,
        [pa.Table.from_pylist(rows, schema=LINES)],
        FileName(STREAM, LIFE, 41, 60, table.writer),
    )
    table.commit_batch("41", {STREAM: Range(LIFE, 41, 60)}, added, kept(table))

    lake.erasure(source="/var/log/db1/app[1].log").erase(NOW)

    sources = {row["source"] for row in lake.rows()}
    assert "/var/log/db1/app1.log" in sources
    assert "/var/log/db1/app[1].log" not in sources


def test_a_later_merge_that_was_slower_brings_nothing_back(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first merge is of another hour, and follows the erasure; the second one must not."""
    from logpipeline_spark.table import upkeep as upkeep_module

    table = lake.open()
    for first, last in ((1, 40), (41, 100), (101, 150)):
        lake.batch(table, first, last)

    def reach(place: str) -> None:
        if place == "table.merge-written":
            monkeypatch.undo()
            lake.erasure(host="web1", since=BEGIN + timedelta(hours=1)).erase(NOW)

    monkeypatch.setattr(upkeep_module, "reach", reach)
    merges = upkeep(lake.storage, lake.new_logs()).compact(OVER, merges_max=2)

    assert lake.rows() == rows_of(1, 60) + rows_of(61, 150, without=is_web1)
    assert lake.problems == ()
    assert len(merges) == 1


def test_who_is_always_overtaken_says_so_and_changes_nothing(
    lake: Lake, table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some attempts, in a sentence; retention may take all files meanwhile."""
    monkeypatch.setattr(erasure_module, "ATTEMPTS", 1)
    other = upkeep(lake.storage, lake.new_logs())
    at(monkeypatch, "table.erasure-written", lambda: other.compact(OVER))

    with pytest.raises(Refused, match="nothing was erased: try again"):
        lake.erasure(host="web1").erase(NOW)

    assert lake.rows() == rows_of(1, 150)
    monkeypatch.setattr(erasure_module, "ATTEMPTS", 2)
    limits = Limits(age=timedelta(hours=1))
    at(
        monkeypatch,
        "table.erasure-written",
        lambda: other.retain(OVER - timedelta(hours=22), limits),
    )
    lake.erasure(host="web1").erase(NOW)
    assert lake.rows() == rows_of(61, 150, without=is_web1)


def test_batches_merges_and_erasures_at_once_lose_and_double_nothing(lake: Lake) -> None:
    """Each line that is not meant is there once, and each that is meant not at all."""
    table = lake.open()
    lake.batch(table, 1, 20)
    keeper, done = upkeep(lake.storage, lake.new_logs()), threading.Event()

    def keep() -> None:
        while not done.is_set():
            keeper.compact(OVER)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        for number in range(1, ROUNDS):
            lake.batch(table, number * 20 + 1, number * 20 + 20)
            lake.erasure(host="web1").erase(NOW)
    finally:
        done.set()
        thread.join()

    assert lake.rows() == rows_of(1, ROUNDS * 20, without=is_web1)
    assert lake.problems == ()


class Killed(BaseException):
    """What a process sees of its end."""


MODULES = (erasure_module, delta_module, iceberg_module, local_module)


@pytest.mark.parametrize("has_grace", [True, False])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_killed_between_any_two_steps_it_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_grace: bool
) -> None:
    """Until it is committed all lines are there, then none of those that are meant; the next one
    finishes it, and others never miss a line.
    """
    places = []
    for number in itertools.count(1):
        lake = FORMATS[name](tmp_path / str(number))
        (tmp_path / str(number)).mkdir()
        lake.batch(lake.open(), 1, 65)
        killed_at = _killed_at(lake, monkeypatch, number, has_grace=has_grace)
        if not killed_at:
            break
        places.append(killed_at)
        is_committed = "table.committed" in places
        assert lake.rows() == rows_of(1, 65, without=is_web1 if is_committed else lambda row: False)

        proof = lake.erasure(host="web1").erase(NOW, has_grace=has_grace)

        assert lake.rows() == rows_of(1, 65, without=is_web1)
        assert (proof.lines == 0) == is_committed
        assert lake.problems == ()
        assert has_grace or b"web1" not in lake.stored_text()
    written = ["table.file-written"] * 2 + ["table.erasure-written"]
    committed = ["table.committed", "table.erasure-committed"]
    dropped = ["table.file-removed"] * 2
    assert places[:5] == written + committed
    assert has_grace or places[5:7] == dropped


def _killed_at(lake: Lake, monkeypatch: pytest.MonkeyPatch, number: int, *, has_grace: bool) -> str:
    """Erase, and be killed at the step *number*; return which it was, empty where none was."""
    found = []
    left = itertools.count(1)

    def reach(place: str) -> None:
        if next(left) == number:
            found.append(place)
            raise Killed

    with monkeypatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "reach", reach)
        with suppress(Killed):
            lake.erasure(host="web1").erase(NOW, has_grace=has_grace)
    return "".join(found)


def test_done_again_it_finds_nothing_and_makes_no_version(lake: Lake, table: TableWriter) -> None:
    """And it still says until when files of former versions hold such lines."""
    first = lake.erasure(host="web1").erase(NOW)
    second = lake.erasure(host="web1").erase(NOW)

    assert (second.lines, second.replaced) == (0, ())
    assert second.version_after == second.version_before == first.version_after
    assert second.remaining == first.remaining
    assert {each.path for each in first.remaining} == {
        each.found.entry.path for each in first.replaced
    }


def test_former_files_go_when_the_proof_says(lake: Lake, table: TableWriter) -> None:
    """Also those that a merge had replaced before; not a minute earlier, for readers need them."""
    # Files that are as old as those of a table at rest are needed until they were replaced.
    lake.age(hours=2 * GRACE_HOURS)
    upkeep(lake.storage, lake.new_logs()).compact(OVER)
    begun = datetime.now(UTC)
    proof = lake.erasure(host="web1").erase(begun)
    assert len(proof.remaining) > len(proof.replaced)
    assert proof.gone_by is not None
    grace = timedelta(hours=GRACE_HOURS)
    assert abs(proof.gone_by - begun - grace) < timedelta(minutes=1)
    assert b"web1" in lake.stored_text()
    lake.age(hours=GRACE_HOURS - 0.1)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert table_files(Path(lake.storage.url)) > {former.path for former in proof.remaining}

    lake.age(hours=0.2)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert b"web1" not in lake.stored_text()
    assert lake.erasure(host="web1").erase(NOW).remaining == ()
    assert lake.rows() == rows_of(1, 150, without=is_web1)


def test_without_grace_former_files_go_at_once(lake: Lake, table: TableWriter) -> None:
    """Those with such lines, and no others: neither those that other versions need, nor what a
    batch writes now.
    """
    upkeep(lake.storage, lake.new_logs()).compact(OVER)
    added = write_range(
        lake.storage, [lines(151, 152)], FileName(STREAM, LIFE, 151, 152, table.writer)
    )
    table.commit_batch("other", {STREAM: Range(LIFE, 151, 152)}, added, kept(table))
    [other] = lake.erasure(host="node-a").erase(NOW).remaining
    writing = lake.write(table, 153, 160)

    proof = lake.erasure(host="web1").erase(NOW, has_grace=False)

    assert proof.remaining == ()
    assert len(proof.dropped) > len(proof.replaced) > 0
    there = {entry.path for entry in lake.new_logs()["lines"].files()}
    left = {other.path, *(entry.path for entry in writing)}
    assert table_files(Path(lake.storage.url)) == there | left
    table.commit_batch("153", {STREAM: Range(LIFE, 153, 160)}, writing, kept(table))
    assert lake.rows() == rows_of(1, 150, without=is_web1) + rows_of(153, 160)
    assert lake.problems == ()


def test_lists_of_files_with_values_of_lines_go_as_well(tmp_path: Path) -> None:
    """Iceberg's manifests hold the smallest and largest value of a column: that of the snapshot
    that erased as well, of what it removed.
    """
    lake = FORMATS["iceberg"](tmp_path)
    table = lake.open()
    lake.batch(table, 1, 20)
    assert any(b"web2" in value for value in bounds(lake))
    before = manifests(lake)
    lake.erasure(host="web2").erase(NOW, has_grace=False)
    assert not set(before) <= set(manifests(lake))
    lake.batch(table, 21, 21)
    lake.age(hours=GRACE_HOURS + 1)

    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert lake.rows() == rows_of(1, 21, without=lambda row: row["host"] == "web2")
    assert not any(b"web2" in value for value in bounds(lake))


def manifests(lake: Lake) -> list[Path]:
    """Return all lists of files of lines, and the lists of these."""
    return sorted((Path(lake.storage.url) / "_iceberg" / "lines").rglob("*.avro"))


def bounds(lake: Lake) -> list[bytes]:
    """Return all values of lines in all lists of files that are there, needed or not."""
    found: list[bytes] = []
    for path in manifests(lake):
        if not path.name.startswith("snap-"):
            with AvroFile[ManifestEntry](
                PyArrowFileIO().new_input(str(path)),
                MANIFEST_ENTRY_SCHEMAS[2],
                read_types={-1: ManifestEntry, 2: DataFile},
            ) as entries:
                for entry in entries:
                    found += [*entry.data_file.lower_bounds.values()]
                    found += [*entry.data_file.upper_bounds.values()]
    return found


def test_damage_is_told_and_nothing_is_erased(lake: Lake, table: TableWriter) -> None:
    """A file that cannot be read may hold such lines: it is named."""
    entry = lake.new_logs()["lines"].files()[0]
    path = Path(lake.storage.url) / entry.path
    whole = path.read_bytes()
    path.write_bytes(bytes(entry.bytes))

    with pytest.raises(Damaged, match=entry.path):
        lake.erasure(host="web1").erase(NOW)

    path.write_bytes(whole)
    assert lake.rows() == rows_of(1, 150)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "Nothing names the lines"),
        ({"since": BEGIN}, "Nothing names the lines"),
        ({"host": ""}, "--host is empty"),
        ({"host": "a", "since": OVER, "until": BEGIN}, "--since is not before --until"),
    ],
)
def test_what_cannot_be_right_is_refused(said: dict[str, Any], sentence: str) -> None:
    """Before anything is read."""
    with pytest.raises(Refused, match=sentence):
        Condition(**said)


def test_where_there_is_no_table_it_says_so(lake: Lake) -> None:
    """And makes none."""
    with pytest.raises(Refused, match="There is no table"):
        Erasure(lake.storage, lake.new_logs(), Condition(host="a")).erase(NOW)
    assert isinstance(lake.storage, LocalStorage)
    assert not Path(lake.storage.url).exists()


def at(monkeypatch: pytest.MonkeyPatch, place: str, do: Callable[[], object]) -> None:
    """Do something when an erasure comes to *place* for the first time."""
    waiting = [do]

    def reach(name: str) -> None:
        if name == place and waiting:
            waiting.pop()()

    monkeypatch.setattr(erasure_module, "reach", reach)
