"""What becomes of a message's bytes in a table, case by case."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from logpipeline_spark.lines import arrow as lines_table
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import groups
from logpipeline_spark.lines.schema import FEW_VALUES, LINES, LINES_ENCODED
from tables.messages import HOST, ORIGIN, SUBJECT, TIME_NS, foreign, lines_of, message

T = b"2026-11-21T10:00:00.123456789Z"


def rows(*messages: Any) -> list[dict[str, Any]]:
    """Return the lines of *messages*."""
    return [dict(row) for row in lines_of(messages, ORIGIN).to_pylist()]


def columns(messages: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of the lines."""
    return [tuple(row[name] for name in names) for row in rows(*messages)]


def test_the_columns_are_these() -> None:
    """Tables of years rely on them: added to, never changed."""
    assert {field.name: str(field.type) for field in LINES} == {
        "stream": "string",
        "incarnation": "string",
        "seq": "int64",
        "idx": "int32",
        "ts": "timestamp[us, tz=UTC]",
        "event_ts": "timestamp[us, tz=UTC]",
        "partition": "int32",
        "cluster": "string",
        "host": "string",
        "namespace": "string",
        "pod": "string",
        "container": "string",
        "fd": "string",
        "level": "string",
        "line": "string",
        "piece": "string",
        "source": "string",
        "generation": "string",
        "offset": "int64",
        "resent": "bool",
        "raw": "binary",
    }
    assert lines_of([], ORIGIN).schema == LINES


def test_a_cri_line_fills_every_column() -> None:
    """Headers give what lines of a message share, the line itself the rest."""
    (row,) = rows(message(T + b" stderr F WARN hot\n", 42, start=100))

    assert row.pop("ts").timestamp() == TIME_NS // 1000 / 1e6
    assert row.pop("event_ts").isoformat() == "2026-11-21T10:00:00.123456+00:00"
    assert row == {
        "stream": "LOGS_6",
        "incarnation": "18a1f3c2d4e5f607r0",
        "seq": 42,
        "idx": 0,
        "partition": 6,
        "cluster": "c1",
        "host": HOST,
        "namespace": "default",
        "pod": "web-1",
        "container": "app",
        "fd": "stderr",
        "level": "warn",
        "line": "WARN hot",
        "piece": None,
        "source": "default/web-1/uid/app/0",
        "generation": "0123456789abcdef",
        "offset": 100,
        "resent": False,
        "raw": None,
    }


def test_a_foreign_message_is_lines_without_a_source() -> None:
    """fshipper leaves the last newline out, and an empty message is an empty line."""
    found = columns([foreign(b"one\r\n\ntwo"), foreign(b"", 2)], "seq", "idx", "line", "offset")

    assert found == [(1, 0, "one\r", None), (1, 1, "", None), (1, 2, "two", None), (2, 0, "", None)]


def test_fragments_become_one_line_where_the_first_begins() -> None:
    """Of two streams that are mixed, in the order in which their lines end."""
    data = T + b" stdout P a\n" + T + b" stderr F e\n" + T + b" stdout P b\n" + T + b" stdout F c\n"
    plain = message(T + b" stdout F next\n", 2)

    found = columns([message(data), plain], "seq", "idx", "fd", "line", "offset", "piece")
    assert found == [
        (1, 0, "stderr", "e", 42, None),
        (1, 1, "stdout", "abc", 0, None),
        (2, 0, "stdout", "next", 0, None),
    ]


@pytest.mark.parametrize("form", ["cri", "plain"])
def test_pieces_of_an_over_long_line_are_marked(form: str) -> None:
    """All bytes are there, carriage returns among them, as in the collectors' files."""
    head = T + b" stdout F " if form == "cri" else b""
    cut: dict[str, Any] = {"format": form}
    messages = [
        message(head + b"aa\r", 1, ends_inside_line=True, **cut),
        message(b"bb\r", 2, starts_inside_line=True, ends_inside_line=True, **cut),
        message(
            b"cc\r\n" + head + b"d\r\n" + head + b"e",
            3,
            **cut,
            starts_inside_line=True,
            ends_inside_line=True,
        ),
        message(b"f\n" + head + b"g\n", 4, starts_inside_line=True, **cut),
    ]

    assert columns(messages, "seq", "line", "piece") == [
        (1, "aa\r", "begin"),
        (2, "bb\r", "middle"),
        (3, "cc\r", "end"),
        (3, "d\r", None),
        (3, "e", "begin"),
        (4, "f", "end"),
        (4, "g", None),
    ]


def test_fragments_that_go_on_in_other_messages_are_pieces() -> None:
    """A run of fragments longer than a message may be."""
    messages = [
        message(T + b" stdout P a\n" + T + b" stdout P b\n", 1, ends_inside_line=True),
        message(T + b" stdout P c\n", 2, starts_inside_line=True, ends_inside_line=True),
        message(T + b" stdout F d\n" + T + b" stdout F e\n", 3, starts_inside_line=True),
    ]

    assert columns(messages, "line", "piece", "fd") == [
        ("ab", "begin", "stdout"),
        ("c", "middle", "stdout"),
        ("d", "end", "stdout"),
        ("e", None, "stdout"),
    ]


def test_what_cannot_be_believed_is_one_row() -> None:
    """Nothing is lost, and nothing stops: a bad range, a bomb, a stranger's subject."""
    good = message(b"good\n", 9, format="plain")
    wrong_range = message(b"one\ntwo\n", 1)._replace(data=b"one\ntwo\nthree\n")
    bomb = message(b"x" * 1000, 2, compressed=True, end=10)
    stranger = foreign(b"three\nfour", 3, subject="other.p6.node-b")
    elsewhere = foreign(b"five", 4, subject="logs.p05.node-b")
    garbage = foreign(b"six", 5)._replace(headers=b"NATS/1.0\r\nLog-Range: 1\r\n\r\n")

    found = rows(wrong_range, bomb, stranger, elsewhere, garbage, good)
    assert [row["level"] for row in found] == ["undecodable"] * 5 + [None]
    assert [row["host"] for row in found] == [HOST, HOST, None, None, HOST, HOST]
    lines = [row["line"] for row in found]
    assert lines[0] == "one\ntwo\nthree\n"
    assert lines[2:] == ["three\nfour", "five", "six", "good"]


def test_compressed_batches_are_lines_like_others() -> None:
    """The frame is unpacked, never beyond the range's length."""
    data = (T + b" stdout F hello\n") * 100

    assert {row["line"] for row in rows(message(data, compressed=True))} == {"hello"}


def test_bytes_that_are_no_text_are_replaced_in_their_line_alone() -> None:
    """A cut in the middle of a letter among them."""
    data = "grün\n".encode() + b"bad \xff\xfe\n" + "schön\n".encode() + b"\xc3\nx\n"

    found = columns([message(data, format="plain")], "line")
    assert [line for (line,) in found] == ["grün", "bad ��", "schön", "�", "x"]


def test_names_that_are_no_text_stay_apart() -> None:
    """A path is any bytes but NUL."""
    names = [b"/var/\xff.log".decode("utf-8", "surrogateescape"), "/var/ü.log"]
    messages = [message(b"x\n", source=name, format="plain") for name in names]

    assert columns(messages, "source") == [("/var/\\xff.log",), ("/var/ü.log",)]


def test_lines_sent_again_are_marked() -> None:
    """Not such as a shipper at its first start marks, which knows of no earlier sending."""
    unsure = message(b"z\n", 3, resend=True, unsure=True)
    found = columns([message(b"x\n", resend=True), message(b"y\n", 2), unsure], "resent")
    assert found == [(True,), (False,), (False,)]


def test_a_message_of_nothing_but_newlines_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by lines as well as by bytes; numbers go on over the parts."""
    monkeypatch.setattr(lines_table, "ROWS_MAX", 7)
    messages = [foreign(b"\n" * 9, 1), message(T + b" stdout P a\n" + T + b" stdout F b\n", 2)]
    (group,) = groups(messages, ORIGIN)

    tables = list(tables_of(group, ORIGIN))
    assert [table.num_rows for table in tables] == [7, 4]
    assert all(table.schema == LINES_ENCODED for table in tables)
    whole = pa.concat_tables(tables).cast(LINES)
    assert whole["idx"].to_pylist() == [*range(10), 0]
    assert whole["line"].to_pylist() == [""] * 10 + ["ab"]


def test_a_piece_is_marked_in_whichever_part_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number counts from the beginning of all parts."""
    monkeypatch.setattr(lines_table, "ROWS_MAX", 2)
    data = b"a\n" * 4 + b"cut\r"

    found = columns([message(data, format="plain", ends_inside_line=True)], "line", "piece")
    assert found == [*[("a", None)] * 4, ("cut\r", "begin")]


def test_dictionaries_hold_no_null() -> None:
    """A null is a missing index: what writers expect, and statistics count."""
    messages = [foreign(b"x"), message(T + b" stdout F INFO x\n", 2)]
    (group,) = groups(messages, ORIGIN)
    (table,) = tables_of(group, ORIGIN)

    encoded = [column for column in table.columns if pa.types.is_dictionary(column.type)]
    assert len(encoded) == len(FEW_VALUES)
    assert all(column.chunk(0).dictionary.null_count == 0 for column in encoded)
    assert table["fd"].null_count == table["level"].null_count == table["source"].null_count == 1


def test_messages_are_opened_in_groups_of_some_bytes() -> None:
    """One that is larger than a group is a group."""
    messages = [foreign(b"x" * size, number) for number, size in enumerate([5, 5, 30, 5], 1)]

    found = [
        [opened.message.sequence for opened in g] for g in groups(messages, ORIGIN, bytes_max=12)
    ]
    assert found == [[1, 2], [3], [4]]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"INFO started", "info"),
        (b"2026-11-21 10:00:00,123 [main] WARN  c.e.App - hot", "warn"),
        (b'{"ts":1,"level":"error","msg":"x"}', "error"),
        (b'{"severity": "CRITICAL"}', "fatal"),
        (b"time=x level=debug msg=y", "debug"),
        (b'{"level":30,"msg":"pino"}', "info"),
        (b"E1121 10:00:00.000001       1 main.go:1] x", "error"),
        (b"2026/11/21 [notice] 1#1: nginx", "info"),
        (b"PANIC: runtime", "fatal"),
        (b"no information here", None),
        (b"INFORMED", None),
        (b"the level is high", None),
        (b"x" * 130 + b" ERROR", None),
        (b"", None),
        # Tools and loggers of others, by their own documents.
        (b"[50/120] Compiling", None),
        (b"proc[50]: fine", None),
        (b"[60%] Built target x", None),
        (b"[10.0.0.1] GET /", None),
        (b"[10:22:33] [Server thread/INFO]: Done", "info"),
        (b"[10:22:33] [thread/warn]: hot", "warn"),
        (b"level=10.5 bar", None),
        (b"error: could not compile", "error"),
        (b"error[E0382]: borrow of moved value", "error"),
        (b"main.c:12:5: warning: unused variable", "warn"),
        (b"fatal: not a git repository", "fatal"),
        (b"panic: runtime error: index out of range", "fatal"),
        (b"npm ERR! code ENOENT", "error"),
        (b"[10:00:00 INF] Serilog", "info"),
        (b"[INF] Serilog", "info"),
        (b"[ERR] Serilog", "error"),
        (b"10:15AM WRN zerolog", "warn"),
        (b"2026-11-21T10:15:00Z DBG zerolog", "debug"),
        (b"[Wed Oct 11 14:32:52.1 2026] [core:error] [pid 1] apache", "error"),
        (b"10:15:00 [INFO ] padded", "info"),
        (b'{"msg":"' + b"x" * 300 + b'","level":"error"}', "error"),
        (b'{"msg":"no ERROR at all","level":"info"}', "info"),
        (b'{"msg":"an ERROR in a sentence"}', None),
        (b'{"levelname": "WARNING", "line": 50}', "warn"),
        (b'{"log.level":"debug","ecs.version":"1.6"}', "debug"),
        (b'{"time":1,"level":60}', "fatal"),
        (b'{"level":605}', None),
    ],
)
def test_levels(line: bytes, level: str | None) -> None:
    """As loggers write them; words of a sentence are no level."""
    assert columns([foreign(line, subject=SUBJECT)], "level") == [(level,)]
