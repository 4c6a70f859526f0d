"""A search for words reads the groups of rows that may hold them, and misses no line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.tables import duck
from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import GRACE_HOURS
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table import parquet
from logpipeline_spark.table import word_filters as words_module
from logpipeline_spark.table.files import (
    WORDS,
    FileEntry,
    FileName,
    Range,
    compacted_name,
    words_path,
)
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.search import Search, dataset
from logpipeline_spark.table.storage import LocalStorage, Storage
from logpipeline_spark.table.word_filters import (
    WORD_BYTES_MAX,
    Chosen,
    Filters,
    chosen,
    distinct,
    words_of,
)
from tables.erased import FORMATS, Lake
from tables.made import BEGIN, LIFE, kept, lines, logs, opened, upkeep

OVER = BEGIN + timedelta(days=1)
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
PATH = "lines/dt=2026-11-21/hour=10/" + compacted_name(number="0" * 32, part=0)
OTHER = "lines/dt=2026-11-21/hour=10/" + compacted_name(number="1" * 32, part=0)
# As people write words, and as a search's sentence says what one is.
WORD = re.compile("[0-9A-Za-z_\x80-\U0010ffff]+")
# What lines are made of: words of all lengths, whatever parts them, and characters of many bytes.
PIECES = st.sampled_from(["a", "B7", "_", " ", "\0", "=", "\n", "é", "日本", "\U0001f600", "x" * 9])
LINES = st.lists(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=9), max_size=9)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def column(*chunks: Sequence[str | None]) -> pa.ChunkedArray:
    """Return lines as a column."""
    return pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())


def entry_of(*, path: str = PATH, rows: int, size_bytes: int = 1 << 20) -> FileEntry:
    """Return a file that only a log knows."""
    return FileEntry(path=path, rows=rows, bytes=size_bytes, first_us=0, last_us=0)


def written(storage: Storage, groups: Sequence[Sequence[str]], *, path: str = PATH) -> FileEntry:
    """Write the filters of a file of such groups, and return its entry."""
    filters = Filters()
    for group in groups:
        filters.add(column(group))
    entry = entry_of(path=path, rows=sum(map(len, groups)))
    filters.write(storage, entry)
    return entry


class InMemory:
    """What filters need of a storage, without a disk's time."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def write(self, path: str, data: bytes) -> None:
        self._objects[path] = data

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        data = self._objects.get(path)
        return None if data is None else data[start : start + length]


@given(LINES, LINES, st.integers(0, 3), st.integers(1, 20))
def test_words_of_lines_are_found_wherever_portions_end(
    first: list[str], second: list[str], skipped: int, portion_bytes: int
) -> None:
    """All of them, and no others: those of two lines never become one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_module, "PORTION_BYTES", portion_bytes)
        found = distinct(pa.chunked_array([column(first, second).chunk(n) for n in (0, 1)]))
        rest = distinct(column(first).slice(skipped))

    assert set(found.tolist()) == numbers(first + second)
    assert set(rest.tolist()) == numbers(first[skipped:])
    assert list(found) == sorted(found)


def numbers(texts: Sequence[str]) -> set[int]:
    """Return the numbers of the words of *texts*, one by one."""
    return {n for text in texts for word in WORD.findall(text) for n in words_of(word).tolist()}


def test_a_word_is_known_by_its_letters_alone() -> None:
    """Small and capital ones are one; other lines, a null and what stands around add nothing."""
    found = distinct(column(["Trace_9é=4BF92f"], [None, "", "trace_9é", "(4bf92F)"]))

    assert set(found.tolist()) == numbers(["trace_9é", "4bf92f"])
    assert (
        numbers(["ab=cd"]) == numbers(["ab"]) | numbers(["cd"]) == set(words_of("ab=cd").tolist())
    )
    assert len(found) == 2
    assert len(words_of("(=\0 -)")) == len(distinct(column())) == 0


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17, WORD_BYTES_MAX - 1, WORD_BYTES_MAX])
def test_each_letter_of_a_word_counts(length: int) -> None:
    """Also the last one; but of a word that is longer than any that is looked for."""
    word = "x" * length
    others = [word[:-1] + "y", "y" + word[1:], word[:-1]]

    assert len(numbers([word, *others])) == 4
    assert numbers([word, word + "y"]) == numbers([word]) or length < WORD_BYTES_MAX


@given(st.lists(st.lists(st.text(max_size=20), min_size=1, max_size=9), min_size=1, max_size=9))
def test_no_group_that_holds_a_word_is_left_out(
    groups: list[list[str]],
) -> None:
    """Whatever the lines are, and however different the groups' numbers of words."""
    storage = cast(Storage, InMemory())
    groups = [*groups, [f"word{n}" for n in range(300)]]
    entry = written(storage, groups)

    for number, group in enumerate(groups):
        for line in group[:9]:
            found = chosen(storage, entry, words_of(line))
            assert found is not None
            assert number in found.numbers
            assert found.rows == tuple(map(len, groups))


@pytest.mark.parametrize("words", [3, 300, 30_000])
def test_few_groups_without_a_word_are_read(tmp_path: Path, words: int) -> None:
    """Less than one of thirty, in small filters and large ones; of two words, hardly any."""
    storage = LocalStorage(tmp_path)
    groups = [[f"g{g}w{w}" for w in range(words)] for g in range(20)]
    entry = written(storage, groups)

    one = [chosen(storage, entry, words_of(f"none{n}")) for n in range(200)]
    two = [chosen(storage, entry, words_of(f"none{n} other{n}")) for n in range(200)]

    assert sum(len(found.numbers) for found in one if found is not None) < 20 * 200 / 30
    assert sum(len(found.numbers) for found in two if found is not None) < 20 * 200 / 300
    assert None not in (*one, *two)
    for number in range(20):
        found = chosen(storage, entry, words_of(f"g{number}w{words - 1} g{number}w0"))
        assert found is not None
        assert number in found.numbers


def test_whatever_bit_of_filters_changes_no_group_is_missed(tmp_path: Path) -> None:
    """The answer is the same, or that all is to be read; so it is of filters that are cut short."""
    storage = LocalStorage(tmp_path)
    entry = written(storage, [["alpha", "beta"], ["gamma"], ["alpha"]])
    place = words_path(PATH)
    assert place is not None
    whole = storage.read(place)
    assert whole is not None
    words = words_of("alpha")
    right = Chosen(rows=(2, 1, 1), numbers=(0, 2))
    assert chosen(storage, entry, words) == right
    is_found = []
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        storage.write(place, bytes(changed))
        is_found.append(chosen(storage, entry, words) is None)
        storage.write(place, whole[:at])

        assert chosen(storage, entry, words) is None

    assert all(is_found)


def test_filters_of_another_file_are_none(tmp_path: Path) -> None:
    """Neither those that were copied, nor those of a file of that name with other groups; nor are
    there any of a file that no merge made.
    """
    storage = LocalStorage(tmp_path)
    entry = written(storage, [["alpha"]])
    copied = written(storage, [["beta"]], path=OTHER)
    words = words_of("alpha")
    assert chosen(storage, entry, words) == Chosen(rows=(1,), numbers=(0,))
    (tmp_path / str(words_path(PATH))).replace(tmp_path / str(words_path(OTHER)))

    assert chosen(storage, copied, words) is None
    assert chosen(storage, entry, words) is None
    written(storage, [["beta"]])
    assert chosen(storage, entry_of(rows=1, size_bytes=(1 << 20) + 1), words) is None
    assert chosen(storage, entry_of(rows=2), words) is None
    assert words_path("lines/dt=2026-11-21/hour=10/part-0000.parquet") is None
    assert words_path(PATH.replace("lines/", "rollup/minute/")) is None


@pytest.mark.parametrize(
    ("texts", "sentence"), [(("a", ""), "--grep is empty"), (("\udcff",), "is not UTF-8")]
)
def test_a_search_that_cannot_be_right_is_refused(texts: tuple[str, ...], sentence: str) -> None:
    """Before anything is read."""
    with pytest.raises(Refused, match=sentence):
        Search(texts)


class Watched:
    """A storage that counts what is read of it: bytes, and from where to where of files."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.bytes = 0
        self.places: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        data = self._storage.read_range(path, start, length)
        self.bytes += len(data or b"")
        return data

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, _WatchedFile(self, self._storage.open(path)))


class _WatchedFile:
    def __init__(self, watched: Watched, file: BinaryIO) -> None:
        self._watched = watched
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __del__(self) -> None:
        self._file.close()

    def read(self, length: int = -1) -> bytes:
        start = self._file.tell()
        data = self._file.read(length)
        self._watched.places.append((start, start + len(data)))
        self._watched.bytes += len(data)
        return data


GROUPS = 40
ROWS = 600


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> LocalStorage:
    """A table with one merged file of 40 groups, whose lines hardly repeat one another."""
    storage = LocalStorage(tmp_path_factory.mktemp("large"))
    table = opened(storage)
    for group in range(GROUPS):
        stream = f"LOGS_{group:02d}"
        rows = lines(1, ROWS // 2, stream=stream, step=timedelta(seconds=1))
        ids = [b"%d.%d" % (group, row) for row in range(ROWS)]
        texts = [
            " ".join(hashlib.sha512(at + b"%d" % n).hexdigest() for n in range(8)) for at in ids
        ]
        texts[77] += f" only{group:02d} in=group-{group % 2}"
        rows = rows.set_column(rows.schema.get_field_index("line"), "line", pa.array(texts))
        name = FileName(stream, LIFE, 1, ROWS // 2, table.writer)
        added = write_range(storage, [rows], name)
        batch = {stream: Range(LIFE, 1, ROWS // 2)}
        table.commit_batch(stream, batch, added, kept(table, stream))
    with pytest.MonkeyPatch.context() as patch:
        # Each stream has a group, though it has few lines.
        patch.setattr(parquet, "GROUP_ROWS_MIN", 1)
        upkeep(storage, has_words=True).compact(OVER)
    return storage


@pytest.mark.parametrize(("has_words", "groups"), [(True, 6), (False, 2)])
def test_groups_are_small_where_words_have_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_words: bool, groups: int
) -> None:
    """A rare word costs a search one of them: a large one would be a tenth of a small table."""
    monkeypatch.setattr(parquet, "GROUP_ROWS_MAX", 60)
    monkeypatch.setattr(parquet, "SEARCHED_ROWS_MAX", 20)
    storage = LocalStorage(tmp_path)
    table = opened(storage)
    for first in (1, 31):
        name = FileName("LOGS_0", LIFE, first, first + 29, table.writer)
        rows = lines(first, first + 29, step=timedelta(seconds=1))
        batch = {"LOGS_0": Range(LIFE, first, first + 29)}
        added = write_range(storage, [rows], name)
        table.commit_batch(str(first), batch, added, kept(table, "LOGS_0"))

    upkeep(storage, has_words=has_words).compact(OVER)

    [entry] = files(logs(storage))
    metadata = pq.read_metadata(tmp_path / entry.path)
    assert (metadata.num_rows, metadata.num_row_groups) == (120, groups)


def asked(storage: Storage, *texts: str) -> tuple[Watched, list[str]]:
    """Search for *texts*, and return what was read, and the ends of lines that were found."""
    watched = Watched(storage)
    search = Search(texts)
    with duck.opened(cast(Storage, watched), logs(storage), search=search) as connection:
        found = connection.execute("SELECT line FROM lines ORDER BY stream").fetchall()
    return watched, [line.split(" ", 8)[8] for (line,) in found]


def test_for_a_rare_word_hardly_anything_is_read(large: LocalStorage) -> None:
    """Of 40 groups only the one that holds it, and few bytes of the filters."""
    [entry] = files(logs(large))
    metadata = pq.read_metadata(Path(large.url) / entry.path)
    assert metadata.num_row_groups == GROUPS

    watched, found = asked(large, "only17")

    assert found == ["only17 in=group-1"]
    assert groups_read(watched, metadata) == {17}
    assert watched.bytes < 0.05 * entry.bytes
    filters = sum(stored.size_bytes for stored in large.list(WORDS))
    assert filters < 0.03 * entry.bytes


def test_a_word_that_is_nowhere_opens_no_file(large: LocalStorage) -> None:
    """The head of the filters and a slice of them say so."""
    watched, found = asked(large, "nowhere-to be_found")

    assert (found, watched.places) == ([], [])
    assert watched.bytes < 16 * 1024


def test_words_that_many_groups_hold_leave_those_that_hold_all(large: LocalStorage) -> None:
    """A second text takes groups away, and so does each word within a text."""
    [entry] = files(logs(large))
    metadata = pq.read_metadata(Path(large.url) / entry.path)

    watched, found = asked(large, "in=group-1")
    both, found_both = asked(large, "group-1", "only17")

    assert len(found) == GROUPS // 2
    assert groups_read(watched, metadata) == set(range(1, GROUPS, 2))
    assert found_both == ["only17 in=group-1"]
    assert groups_read(both, metadata) == {17}


def test_without_filters_all_is_read_and_the_same_is_found(
    large: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a table that an older version merged."""
    monkeypatch.setattr(LocalStorage, "read_range", lambda *_: None)
    [entry] = files(logs(large))

    watched, found = asked(large, "only17")

    assert found == ["only17 in=group-1"]
    assert watched.bytes > 0.9 * entry.bytes


def test_groups_that_a_file_does_not_have_choose_nothing(large: LocalStorage) -> None:
    """Where filters speak of other groups than the file's footer, all rows are read."""
    [entry] = files(logs(large))
    other = Chosen(rows=(entry.rows,), numbers=(0,))
    found = dataset(large, [entry], SCHEMA, {entry.path: other}).to_table(columns=["seq"])

    assert found.num_rows == entry.rows


def groups_read(watched: Watched, metadata: pq.FileMetaData) -> set[int]:
    """Return of which groups lines were read."""
    found = set()
    for number in range(metadata.num_row_groups):
        names = metadata.schema.names
        line = metadata.row_group(number).column(names.index("line"))
        middle = line.data_page_offset + line.total_compressed_size // 2
        if any(start <= middle < end for start, end in watched.places):
            found.add(number)
    return found


@pytest.fixture(params=sorted(FORMATS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table of each format, whose hours were merged."""
    lake = FORMATS[request.param](tmp_path)
    table = lake.open()
    for first, last in ((1, 40), (41, 80), (81, 130), (131, 150)):
        lake.batch(table, first, last)
    upkeep(lake.storage, lake.new_logs(), has_words=True).compact(OVER)
    return lake


def filters_of(lake: Lake) -> set[str]:
    """Return all filters that are there."""
    return {stored.path for stored in lake.storage.list(WORDS)}


def test_filters_of_erased_lines_go_at_once(lake: Lake) -> None:
    """With the version that is without them, though the files stay for two hours: what stands for
    these has filters of its own.
    """
    before = {entry.path: entry for entry in files(lake.new_logs())}
    words = words_of("145")
    assert any(holds(lake, entry, words) for entry in before.values())

    proof = lake.erasure(host="web2").erase(NOW)

    after = {entry.path: entry for entry in files(lake.new_logs())}
    assert not before.keys() & after.keys()
    assert {former.path for former in proof.remaining} >= before.keys()
    assert filters_of(lake) == {words_path(path) for path in after}
    assert not any(holds(lake, entry, words) for entry in after.values())
    assert any(holds(lake, entry, words_of("144")) for entry in after.values())


def holds(lake: Lake, entry: FileEntry, words: Any) -> bool:
    """Return whether filters of a file say that it may hold *words*."""
    found = chosen(lake.storage, entry, words)
    assert found is not None
    return bool(found.numbers)


def test_an_erasure_that_was_killed_takes_filters_away_once_more(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run again it finds no line, and still removes what the first one left."""
    from logpipeline_spark.table import erasure as erasure_module

    def reach(place: str) -> None:
        if place == "table.erasure-committed":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(erasure_module, "reach", reach)
        with pytest.raises(KeyboardInterrupt):
            lake.erasure(host="web2").erase(NOW)
    needed = {words_path(entry.path) for entry in files(lake.new_logs())}
    assert filters_of(lake) > needed

    lake.erasure(host="web2").erase(NOW)

    assert filters_of(lake) == needed


def test_filters_go_with_their_files_and_not_before(lake: Lake) -> None:
    """By the clean-up that removes the files, whoever merged them."""
    before = filters_of(lake)
    lake.batch(lake.open(), 151, 152)
    upkeep(lake.storage, lake.new_logs(), has_words=True).compact(OVER)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert filters_of(lake) > before
    lake.age(hours=GRACE_HOURS + 0.1)

    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    there = {words_path(entry.path) for entry in files(lake.new_logs())}
    assert filters_of(lake) == there
    assert len(there) == len(before)


def test_numbers_of_words_never_change() -> None:
    """Filters that were written years ago are asked by them."""
    long = "4bf92f3577b34da6a3ce929d0e0e4736"

    assert numbers(["Error"]) == {12513064069279175276}
    assert numbers(["é"]) == {16391069975570282746}
    assert numbers([long]) == {81163632757817489}
    assert numbers([3 * long]) == {15233245100221633361}
