"""`query`, `report` and `table` over a table: what they print, and what they exit with."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from logpipeline_cli.commands.report import ask
from logpipeline_cli.main import main
from logpipeline_cli.tables import duck
from logpipeline_spark.job.rebuild import Rebuild
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table.files import FileEntry, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.scan import files as files_of
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.writer import TableWriter
from tables.erased import age, delta
from tables.fed import Job, Sent, lose_state
from tables.made import BEGIN, LIFE, STREAM, counted_batch, kept, lines, logs, opened

# 100 messages of two lines; of three messages one has no level.
MESSAGES = 100
LINES = 2 * MESSAGES
Run = Callable[..., tuple[int, str, str]]


def files(storage: LocalStorage) -> list[FileEntry]:
    """Return the files of lines that count."""
    return files_of(logs(storage))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "table")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Carry out a command on the table; return its status, and what it printed."""

    def run(*words: str, **table: object) -> tuple[int, str, str]:
        said = {"enabled": True, "path": str(tmp_path / "table"), **table}
        resource = {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "demo"},
            "spec": {"table": said},
        }
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump(resource))
        status = main([*words, "-f", str(file), "--data", str(tmp_path / "data")])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def table(storage: LocalStorage) -> TableWriter:
    """A table of four batches, with counts, that nobody writes now."""
    table = opened(storage)
    for first in range(1, MESSAGES, 25):
        counted_batch(table, storage, first, first + 24)
    table.close()
    return table


def test_a_question_is_answered_from_lines_and_from_counts(table: TableWriter, run: Run) -> None:
    """DuckDB reads both, and both say the same."""
    _, of_lines, _ = run("query", "SELECT level, count(*) FROM lines GROUP BY 1 ORDER BY 1")
    _, of_counts, _ = run("query", "SELECT level, sum(lines) FROM minutes GROUP BY 1 ORDER BY 1")
    _, of_sources, _ = run("query", "SELECT sum(lines)::int AS n FROM sources", "-o", "json")

    assert of_lines.splitlines()[1:] == of_counts.splitlines()[1:]
    assert json.loads(of_sources) == [{"n": LINES}]


def test_a_condition_on_times_leaves_files_unread(
    table: TableWriter, storage: LocalStorage, run: Run
) -> None:
    """Also one that the question has: files of other times need not even be there."""
    first, *_, last = sorted(files_of(logs(storage)), key=lambda entry: entry.first_us)
    at = datetime.fromtimestamp(last.first_us / 1e6, UTC)
    (Path(storage.url) / first.path).unlink()
    count = "SELECT count(*) AS n FROM lines"

    asked = run("query", f"{count} WHERE ts >= '{at.isoformat()}'", "-o", "json")
    told = run("query", count, "--since", at.isoformat(), "-o", "json")

    assert [json.loads(out) for _, out, _ in (asked, told)] == [[{"n": last.rows}]] * 2
    assert run("query", f"{count} WHERE host = 'a'")[0] == 1


def test_a_changed_bit_is_an_error_and_no_other_text(
    table: TableWriter, storage: LocalStorage, run: Run
) -> None:
    """Pages have checksums; without them half of the changes would read back as other lines."""
    [entry, *_] = files(storage)
    path = Path(storage.url) / entry.path
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(0).column(SCHEMA.get_field_index("line"))
    whole = path.read_bytes()
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 1, column.data_page_offset, -9):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)

        status, out, error = run("query", "SELECT line FROM lines")

        assert (status, out) == (1, ""), at
        assert "cannot be read (`logpipeline table verify` says which)" in error


def test_answers_are_text_json_or_csv(table: TableWriter, run: Run) -> None:
    """The same rows each time; times are UTC."""
    question = "SELECT seq, line, ts FROM lines WHERE idx = 0 ORDER BY seq LIMIT 2"
    _, text, _ = run("query", question)
    _, as_json, _ = run("query", question, "-o", "json")
    _, as_csv, _ = run("query", question, "-o", "csv")

    expected = [
        [1, "hello 1.0 é", "2026-11-21T10:00:00+00:00"],
        [2, "hello 2.0 é", "2026-11-21T10:01:00+00:00"],
    ]
    assert [list(row.values()) for row in json.loads(as_json)] == expected
    assert list(csv.reader(io.StringIO(as_csv)))[1:] == [[str(v) for v in row] for row in expected]
    assert "hello 2.0 é" in text


def test_json_has_each_column_and_only_numbers_that_json_has(table: TableWriter, run: Run) -> None:
    """As Spark's to_json writes them."""
    question = "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS b, ['-inf'::DOUBLE] AS c, 3 AS a_1"
    _, out, _ = run("query", question, "-o", "json")

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    [row] = json.loads(out, parse_constant=refuse)
    assert row == {"a": 1, "a_1": 2, "b": "NaN", "c": ["-Infinity"], "a_1_1": 3}


def test_events_are_asked_for_as_lines_are(table: TableWriter, run: Run) -> None:
    """Joined by all presets, or as the words say."""
    question = "SELECT sum(lines)::int AS lines, count(*) AS events, min(text) AS text FROM events"

    (by_presets,) = json.loads(run("query", question, "-o", "json")[1])
    (by_own,) = json.loads(run("query", question, "--multiline-begin", r"\.0 ", "-o", "json")[1])

    # No line of the table is of a trace.
    assert by_presets == {"lines": LINES, "events": LINES, "text": "hello 1.0 é"}
    assert by_own == {"lines": LINES, "events": MESSAGES, "text": "hello 1.0 é\nhello 1.1 é"}


def test_bytes_are_printed_as_something_to_use(table: TableWriter, run: Run) -> None:
    """To people as text, with what is none escaped; to programs as base64, also within lists."""
    question = "SELECT '\\xFFok\\x1B'::BLOB AS raw, ['\\xFF'::BLOB] AS many FROM lines LIMIT 1"
    _, text, _ = run("query", question)
    _, as_json, _ = run("query", question, "-o", "json")
    _, as_csv, _ = run("query", question, "-o", "csv")

    assert text.splitlines()[1].split() == ["\\xffok\\x1b", "[\\xff]"]
    assert json.loads(as_json) == [{"raw": "/29rGw==", "many": ["/w=="]}]
    assert list(csv.reader(io.StringIO(as_csv)))[1] == ["/29rGw==", '["/w=="]']


@pytest.mark.parametrize("output", ["text", "csv", "json"])
def test_no_answer_acts_on_a_terminal(
    output: str, table: TableWriter, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are escaped, alone and in lists, and so are names of columns, which may be values."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    question = "SELECT 'a' || chr(27) || ']0;x' || chr(10) AS \"n\x1b\", [chr(27)] AS l, 7 AS i"

    _, said, _ = run("query", question, "-o", output)

    assert "\x1b" not in said
    assert not any(character in said.replace("\r\n", "\n") for character in "\x1b\r\x07")
    if output == "csv":
        assert [*csv.reader(io.StringIO(said))] == [
            ["n\\x1b", "l", "i"],
            ["a\\x1b]0;x\\x0a", '["\\u001b"]', "7"],
        ]


def test_csv_for_a_file_is_exact(table: TableWriter, run: Run) -> None:
    """What is no terminal gets values as they are."""
    _, said, _ = run("query", "SELECT chr(27) || 'x' AS text", "-o", "csv")

    assert [*csv.reader(io.StringIO(said))] == [["text"], ["\x1bx"]]


def test_a_question_is_about_a_time(table: TableWriter, run: Run) -> None:
    """Only files of that time are read, and only lines of that time are seen."""
    status, out, _ = run(
        "query", "SELECT count(*) AS n FROM lines", "-o", "json",
        "--since", "2026-11-21T11:00:00Z", "--until", "2026-11-21T11:10:00Z",
    )  # fmt: skip

    assert (status, json.loads(out)) == (0, [{"n": 20}])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("query", "SELEKT 1"), "the query has a mistake"),
        (("query", "SELECT nothing FROM lines"), "the query has a mistake"),
        (("query", "SELECT 1", "--since", "2026-99-99"), "is not a time; give"),
        (("query", "SELECT 1", "--multiline-begin", "(?!a)"), "write it in RE2's syntax"),
    ],
)
def test_a_mistake_in_a_question_is_said(
    table: TableWriter, run: Run, words: tuple[str, ...], said: str
) -> None:
    """Without a trace: as a failure, or as wrong arguments."""
    status, out, error = run(*words)

    assert out == ""
    assert status == (64 if "--since" in words else 1)
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "words", [("query", "SELECT 1"), ("report", "--out", "none.html"), ("table", "verify")]
)
def test_where_there_is_no_table_commands_say_so(run: Run, words: tuple[str, ...]) -> None:
    """One sentence with the place, and status 1; nothing is made there."""
    status, _, error = run(*words)

    assert status == 1
    assert re.search(r"/table holds no lines|There is no table at .*/table", error)
    assert len(error.splitlines()) == 1


class _Outside(HTMLParser):
    """Collects what a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = ("src", "href", "data", "action", "srcset")
        self.found += [f"{tag} {value}" for name, value in attrs if name in names and value]


def test_a_report_is_one_page_with_the_figures_of_the_counts(
    table: TableWriter, run: Run, tmp_path: Path
) -> None:
    """It needs nothing from elsewhere, and shows sums, sources, plots and gaps."""
    page = tmp_path / "report.html"
    status, out, _ = run("report", "--out", str(page))
    text = page.read_text()
    outside = _Outside()
    outside.feed(text)

    assert (status, out) == (0, f"{page}: {LINES} lines\n")
    assert outside.found == []
    assert f"<p>{LINES} lines, " in text
    assert f"<td>node-a/shop/cart-1/cart</td><td>2.5 KiB</td><td>{LINES}</td><td>0</td>" in text
    assert text.count('class="plotly-graph-div"') == 5
    assert "every message that the streams held was read" in text


def test_a_time_without_lines_is_drawn_as_none(
    storage: LocalStorage, run: Run, tmp_path: Path
) -> None:
    """Each count falls to zero there and rises behind it, in every plot's every series: no line
    leads from before to after. A share of nothing is nothing, and commits are points.
    """
    table = opened(storage)
    counted_batch(table, storage, 1, 10)
    counted_batch(table, storage, 11, 20, begin=BEGIN + timedelta(minutes=30))
    table.close()
    with duck.opened(storage, logs(storage)) as connection:
        answers = ask(connection, storage, logs(storage))
    run("report", "--out", str(tmp_path / "report.html"))

    begin = BEGIN
    minutes = [begin + timedelta(minutes=minute) for minute in range(50)]
    for series in (answers.by_level, answers.by_namespace, answers.by_host):
        for points in series.values():
            assert [at for at, _ in points] == minutes
            assert {value for _, value in points[10:40]} == {0.0}
            assert sum(value or 0 for _, value in points[40:]) > 0
    share = dict(answers.error_share)
    assert (share[begin + timedelta(minutes=5)], share[begin + timedelta(minutes=20)]) == (0, None)
    assert '"mode":"markers"' in (tmp_path / "report.html").read_text()


def test_lines_with_no_plausible_time_are_told_and_not_drawn(
    storage: LocalStorage, run: Run, tmp_path: Path
) -> None:
    """They are lines of the table, and no traffic of any minute."""
    table = opened(storage)
    counted_batch(table, storage, 1, 10)
    counted_batch(table, storage, 11, 20, off=timedelta(days=-400))
    table.close()
    with duck.opened(storage, logs(storage)) as connection:
        answers = ask(connection, storage, logs(storage))
    run("report", "--out", str(tmp_path / "report.html"))

    assert (answers.lines, answers.clamped) == (40, 20)
    for series in (answers.by_level, answers.by_host):
        assert max(at for points in series.values() for at, _ in points).minute == 9
    assert sum(value or 0 for points in answers.by_level.values() for _, value in points) == 20
    told = "20 of these lines have a time that is more than a month before"
    assert told in (tmp_path / "report.html").read_text()


def test_a_report_names_what_was_lost(storage: LocalStorage, run: Run, tmp_path: Path) -> None:
    """Between two batches, and within one; the formats of output name the same."""
    table = opened(storage)
    for first, last, lost in ((1, 10, ()), (21, 40, (Range(LIFE, 25, 26),))):
        rows, name = lines(first, last), FileName(STREAM, LIFE, first, last, 1)
        ranges = {STREAM: Range(LIFE, first, last)}
        table.commit_batch(
            name.stream + str(first), ranges, write_range(storage, [rows], name), kept(table),
            skipped=frozenset({STREAM}), lost={STREAM: lost} if lost else None,
        )  # fmt: skip
    table.close()
    run("report", "--out", str(tmp_path / "report.html"))
    status, out, _ = run("table", "verify")
    _, as_json, _ = run("table", "verify", "-o", "json")

    text = (tmp_path / "report.html").read_text()
    assert f"<td>{STREAM}</td><td>11</td><td>20</td>" in text
    assert f"<td>{STREAM}</td><td>25</td><td>26</td>" in text
    assert status == 0
    assert "11 to 20 were deleted before" in out
    assert "25 to 26 were deleted before" in out
    found, whole = json.loads(as_json), {"stream": STREAM, "incarnation": LIFE}
    assert found["covered"] == [
        whole | {"first": 1, "last": 10}, whole | {"first": 21, "last": 40},
    ]  # fmt: skip
    assert found["skipped"] == [
        whole | {"first": 11, "last": 20}, whole | {"first": 25, "last": 26},
    ]  # fmt: skip


def test_files_are_listed(table: TableWriter, storage: LocalStorage, run: Run) -> None:
    """As text, and as JSON with all that a commit says of them."""
    _, text, _ = run("table", "ls")
    status, as_json, _ = run("table", "ls", "-o", "json")

    entries = files(storage)
    assert status == 0
    assert [row["path"] for row in json.loads(as_json)] == [entry.path for entry in entries]
    assert sum(row["rows"] for row in json.loads(as_json)) == LINES
    assert all(entry.path in text for entry in entries)


def test_a_table_that_is_well_is_verified(table: TableWriter, run: Run) -> None:
    """With status 0, and what it covers."""
    status, out, _ = run("table", "verify")

    assert status == 0
    assert out.splitlines()[-1] == "The table is well."
    assert f"LOGS_0 ({LIFE}): 1 to {MESSAGES}." in out


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("removed", "is committed, and is missing"),
        ("truncated", "bytes, and"),
        ("doubled", "A line is in the table twice"),
    ],
)
def test_a_table_that_is_damaged_is_found_out(
    table: TableWriter, storage: LocalStorage, run: Run, what: str, said: str
) -> None:
    """With status 1, and which file it is."""
    first = files(storage)[0]
    place = Path(storage.url) / first.path
    if what == "removed":
        place.unlink()
    elif what == "truncated":
        place.write_bytes(place.read_bytes()[: first.bytes // 2])
    else:
        again = opened(storage)
        rows = lines(1, 5)
        added = write_range(storage, [rows], FileName(STREAM, LIFE, 101, 105, 1))
        again.commit_batch("again", {STREAM: Range(LIFE, 101, 105)}, added, kept(again))
        again.close()
    status, out, _ = run("table", "verify")
    _, as_json, _ = run("table", "verify", "-o", "json")

    assert status == 1
    assert said in out
    assert out.splitlines()[-1] == "The table is damaged."
    assert json.loads(as_json)["problems"]


def test_small_files_are_put_together_and_old_ones_deleted_when_asked(
    table: TableWriter, storage: LocalStorage, run: Run
) -> None:
    """By hand as the job does it; counts stay."""
    _, out, _ = run("table", "compact")
    assert "were merged" in out
    status, verified, _ = run("table", "verify")
    assert (status, len(files(storage))) == (0, 2), verified
    status, out, _ = run("table", "retain")
    assert (status, out) == (0, "0 files were removed\n")

    status, out, _ = run("table", "retain", retention={"maxAge": "1h"})

    assert status == 0
    assert run("table", "verify")[0] == 0
    assert run("query", "SELECT sum(lines)::int AS n FROM minutes", "-o", "json")[1].strip()


def test_upkeep_by_hand_disturbs_no_writer(storage: LocalStorage, run: Run) -> None:
    """It may be done beside the job, which goes on."""
    table = opened(storage)
    counted_batch(table, storage, 1, 25)
    counted_batch(table, storage, 26, 50)

    assert run("table", "compact")[0] == 0
    assert run("table", "retain", retention={"maxAge": "365d"})[0] == 0
    counted_batch(table, storage, 51, 75)

    assert run("table", "verify")[0] == 0


def test_a_table_of_another_format_is_refused(table: TableWriter, run: Run) -> None:
    """Status 1, and which one it is."""
    status, _, error = run("table", "compact", format="iceberg", catalog={"table": "a.b"})

    assert status == 1
    assert "is a table of format delta: set spec.table.format" in error
    assert "Traceback" not in error


def test_lines_are_erased_with_a_proof(table: TableWriter, storage: LocalStorage, run: Run) -> None:
    """What would go, then what went, as text and as JSON; counts stay, and the table is well."""
    words = ("table", "erase", "--host", "node-a", "--until", "2026-11-21T11:00:00Z")
    former = [entry.path for entry in files(storage) if "hour=10" in entry.path]
    status, planned, _ = run(*words, "--dry-run", "-o", "json")
    assert (status, json.loads(planned)["lines"], len(files(storage))) == (0, 120, 5)
    assert "120 lines with" in run(*words, "--dry-run")[1]

    status, out, _ = run(*words, "--yes", "-o", "json")

    proof = json.loads(out)
    assert status == 0
    assert proof["condition"] == {"host": "node-a", "until": "2026-11-21T11:00:00+00:00"}
    assert (proof["lines"], proof["version_after"]) == (120, proof["version_before"] + 1)
    assert [file["path"] for file in proof["files"]] == former
    assert [file["path"] for file in proof["remaining"]] == former
    time, gone_by = (datetime.fromisoformat(proof[name]) for name in ("time", "gone_by"))
    assert timedelta(hours=2) <= gone_by - time <= timedelta(hours=2, minutes=1)
    _, again, _ = run(*words, "--yes", "--without-grace")
    assert "The table holds no such lines" in again
    assert f"{len(former)} files that held such lines were removed for good" in again
    assert "collectors' files" in again
    assert not any((Path(storage.url) / path).exists() for path in former)
    assert run("table", "verify")[0] == 0
    _, rest, _ = run(
        "query",
        "SELECT (SELECT count(*) FROM lines) AS l, (SELECT sum(lines)::int FROM minutes) AS m",
        "-o",
        "json",
    )
    assert json.loads(rest) == [{"l": LINES - 120, "m": LINES}]


def test_the_same_words_later_remove_former_files(
    table: TableWriter, storage: LocalStorage, run: Run
) -> None:
    """Where no job runs, nothing else does; the proof says then that there is none."""
    words = ("table", "erase", "--host", "node-a", "--yes", "-o", "json")
    former = [file["path"] for file in json.loads(run(*words)[1])["remaining"]]
    age(storage, logs(storage), hours=2.1)

    status, out, _ = run(*words)

    assert (status, json.loads(out)["remaining"]) == (0, [])
    assert former
    assert not any((Path(storage.url) / path).exists() for path in former)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Nothing names the lines to erase"),
        (("--until", "10m", "--yes"), "Nothing names the lines to erase"),
        (("--host", "", "--yes"), "--host is empty"),
        (("--host", "a", "--since", "2026-99-99"), "is not a time; give"),
        (("--host", "a", "--since", "10x"), "10x"),
        (("--host", "node-a"), "give --yes to confirm"),
        (("--host", "node-a", "-o", "json"), "give --dry-run first, then --yes"),
    ],
)
def test_what_does_not_say_enough_erases_nothing(
    table: TableWriter, storage: LocalStorage, run: Run, words: tuple[str, ...], said: str
) -> None:
    """One sentence, as a failure or as wrong arguments, and the table is as before."""
    before = files(storage)

    status, _, error = run("table", "erase", *words)

    assert status == (64 if "--since" in words else 1)
    assert said in error
    assert len(error.splitlines()) == 1
    assert files(storage) == before


def test_nobody_is_asked_where_there_is_nothing_to_erase(
    table: TableWriter, storage: LocalStorage, run: Run
) -> None:
    """As a script that runs the same words each night: there is no terminal."""
    before = files(storage)

    status, out, error = run("table", "erase", "--host", "node-z")

    assert (status, error) == (0, "")
    assert "The table holds no such lines" in out
    assert files(storage) == before


@pytest.mark.parametrize(("answer", "is_erased"), [("y", True), ("", False)])
def test_a_person_at_a_terminal_is_asked(
    table: TableWriter,
    storage: LocalStorage,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_erased: bool,
) -> None:
    """After what would go; only a yes erases."""
    terminal = io.StringIO(f"{answer}\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)

    status, out, _ = run("table", "erase", "--host", "node-a")

    assert f"Erase {LINES} lines for good? [y/N]" in out
    assert (status, files(storage) == []) == ((0, True) if is_erased else (1, False))


@pytest.mark.parametrize(
    ("words", "answer", "is_made"),
    [(["--dry-run"], "", False), ([], "", False), ([], "y", True), (["--yes"], "", True)],
)
def test_a_lost_state_is_made_anew_when_a_person_agrees(
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    answer: str,
    is_made: bool,
) -> None:
    """After what it is made of, and what cannot be known; a second time there is nothing to do."""
    terminal = io.StringIO(f"{answer}\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr(Rebuild.carry_out, "__kwdefaults__", {"wait": lambda seconds: None})
    lake, sent = delta(tmp_path), Sent()
    Job(lake).take(sent, sent.lines("one"))
    lose_state(lake)

    status, out, _ = run("table", "rebuild", *words)

    assert "reading continues after message 1; 1 sources are known" in out
    assert "come back" in out
    assert ("Continue from there? [y/N]" in out) == (not words)
    assert status == (0 if is_made or words else 1)
    status, out, _ = run("table", "rebuild", "--dry-run")
    assert ("nothing to do" in out) == is_made
