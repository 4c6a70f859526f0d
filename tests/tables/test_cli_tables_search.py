"""`query --grep` over a table: which lines it finds, and what it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logpipeline_cli.commands import query
from logpipeline_cli.main import main
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.files import FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.storage import LocalStorage
from tables.made import BEGIN, LIFE, STREAM, kept, lines, logs, opened, upkeep

TEXTS = (
    "conn reset by peer user=42",
    "reset conn user=421",
    "Reset: CONN lost, it's user=42",
    "reconn reset_2 user=42",
    "naïve 日本 (a+b) [x]\x1b[2J",
    "-> user=42",
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["merged", "as it was written"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage:
    """A table of a line a minute, of which some hours may have been merged."""
    storage = LocalStorage(tmp_path / "table")
    table = opened(storage)
    for first in (1, 101):
        rows = lines(first, first + 99, idxs=[0]).to_pylist()
        for row, text in zip(rows, TEXTS, strict=False):
            row["line"] = text
        # The first of these is no container's.
        rows[0] |= {"namespace": None, "pod": None, "container": None, "source": "/var/log/a.log"}
        name = FileName(STREAM, LIFE, first, first + 99, table.writer)
        added = write_range(storage, [pa.Table.from_pylist(rows, schema=LINES)], name)
        batch = {STREAM: Range(LIFE, first, first + 99)}
        table.commit_batch(str(first), batch, added, kept(table))
    table.close()
    if request.param == "merged":
        upkeep(storage, has_words=True).compact(BEGIN + timedelta(days=1))
    return storage


@pytest.fixture
def run(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> Run:
    """Ask the table; return the status, and what was printed."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["query", *words, "--path", storage.url])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_lines_are_printed_the_oldest_first(run: Run) -> None:
    """With their time, host and place, as a terminal may show them."""
    status, out, error = run("--grep", "naïve")
    _, of_file, _ = run("--grep", "peer")

    expected = "{}Z node-a shop/cart-1/cart | naïve 日本 (a+b) [x]\\x1b[2J"
    times = ("2026-11-21T10:04:00.000", "2026-11-21T11:44:00.000")
    assert out.splitlines() == [expected.format(time) for time in times]
    assert (status, error) == (0, "")
    assert of_file.splitlines()[0] == f"2026-11-21T10:00:00.000Z node-a /var/log/a.log | {TEXTS[0]}"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["conn"], [0, 1]),
        (["conn reset"], [0]),
        (["reset conn"], [1]),
        (["conn", "reset"], [0, 1]),
        (["CONN"], [2]),
        (["user=42"], [0, 2, 3, 5]),
        (["=42"], [0, 2, 3, 5]),
        (["er=42"], []),
        (["user="], [0, 1, 2, 3, 5]),
        (["reset_2"], [3]),
        (["it's"], [2]),
        (["日本"], [4]),
        (["日"], []),
        (["(a+b) [x]"], [4]),
        (["->"], [5]),
        (["hello", "conn"], []),
    ],
)
def test_texts_are_found_as_written_and_as_whole_words(
    run: Run, texts: list[str], found: list[int]
) -> None:
    """All of them; letters count as they are, and a word is not found within another one."""
    words = [f"--grep={text}" for text in texts]
    status, out, _ = run(*words, "-o", "json")

    assert status == 0
    assert [row["line"] for row in json.loads(out)] == [TEXTS[n] for n in found] * 2


def test_a_question_and_a_time_narrow_it_further(run: Run) -> None:
    """`lines` of a question holds only what was searched for; so it is with --since and --until."""
    words = ("--grep", "user=42", "--grep", "reset")
    times = ("--since", "2026-11-21T11:00:00Z", "--until", "2026-11-21T12:00:00Z")
    count = "SELECT count(*) AS n, min(seq) AS first FROM lines"

    _, all_of_it, _ = run(*words, count, "-o", "json")
    _, of_a_time, _ = run(*words, *times, count, "-o", "json")
    _, lines_of_a_time, _ = run(*words, *times)

    assert json.loads(all_of_it) == [{"n": 2, "first": 1}]
    assert json.loads(of_a_time) == [{"n": 1, "first": 101}]
    assert len(lines_of_a_time.splitlines()) == 1


def test_it_is_said_where_there_are_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In text, of which people read the beginning; programs get all."""
    monkeypatch.setattr(query, "TEXT_ROWS_MAX", 3)

    _, out, error = run("--grep", "user=42")
    _, as_csv, _ = run("--grep", "user=42", "-o", "csv")

    assert len(out.splitlines()) == 3
    assert error == "… and more rows: these are the first 3\n"
    assert len(as_csv.splitlines()) == 1 + 8


def test_what_names_no_word_is_said_to_read_everything(run: Run) -> None:
    """And is found all the same."""
    status, out, error = run("--grep=->")

    assert (status, len(out.splitlines())) == (0, 2)
    assert error == "--grep has no word: all lines of that time are read\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no query: give one in SQL, or --grep with a word"),
        (("--grep", ""), "--grep is empty"),
        (("--grep", "\udcff"), "is not UTF-8"),
        (("--grep", "conn", "SELEKT 1"), "the query has a mistake"),
    ],
)
def test_a_mistake_is_said(run: Run, words: tuple[str, ...], said: str) -> None:
    """With status 1, and without a trace."""
    status, out, error = run(*words)

    assert (status, out) == (1, "")
    assert said in error
    assert "Traceback" not in error


def test_a_changed_bit_is_an_error_and_no_other_text(storage: LocalStorage, run: Run) -> None:
    """Of a question and of a search; pages have checksums, which are compared."""
    [entry, *_] = files(logs(storage))
    path = Path(storage.url) / entry.path
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(LINES.get_field_index("line"))
    whole = path.read_bytes()
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 1, end - column.total_compressed_size // 2, -41):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)

        for words in (("SELECT line FROM lines",), ("--grep", "naïve")):
            status, out, error = run(*words)

            assert (status, out) == (1, ""), at
            assert re.search("cannot be read.*logpipeline table verify", error.splitlines()[0])
