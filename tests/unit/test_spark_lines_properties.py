"""The columns equal what plain Python says of each line, for any bytes."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from logpipeline import cri
from tables.messages import ORIGIN, foreign, lines_of, message
from tables.reference import COMPARED, EPOCH, rows_of

MICROSECOND = timedelta(microseconds=1)
TIMES = [
    b"2026-11-21T10:00:00.123456789Z",
    b"2026-11-21T10:00:00.12Z",
    b"2026-11-21T10:00:59.5+01:00",
    b"2026-11-21T10:00:00.123456789-07:30",
    b"2026-11-21T10:00:00.123459+0100",
    b"2026-11-21T10:00:00Z",
    b"2026-02-30T10:00:00.1Z",
    b"2026-11-21T10:00:60.1Z",
    b"1970-01-01T00:00:00.0Z",
    b"1969-12-31T23:59:59.9999999Z",
    b"2026-11-21t10:00:00.1Z",
    b"0000-00-00T00:00:00.000000000Z",
    b"",
    b"yesterday",
]
WORDS = st.sampled_from(
    [
        *TIMES,
        b" stdout F ",
        b" stderr F ",
        b" stdout P ",
        b" stderr P:x ",
        b" stdout F:x ",
        b" stdin F ",
        b" stdout F",
        b"\n",
        b"\n",
        b"\r\n",
        b" ",
        b"INFO ",
        b"[error] ",
        b'{"level":"Warning"}',
        b"E1121 10:00",
        b"WARNED",
        b"\xff",
        b"\xc3",
        b"\xa9",
        "grün".encode(),
        b"x" * 130,
    ]
)
LINES = st.tuples(
    st.sampled_from(TIMES),
    st.sampled_from(
        [b" stdout F ", b" stderr F ", b" stderr P ", b" stdout F\n", b" stdout G ", b" stdout   "]
    ),
    st.lists(WORDS, max_size=4).map(b"".join),
).map(b"".join)
DATA = st.one_of(
    st.binary(min_size=1, max_size=80),
    st.lists(WORDS, min_size=1, max_size=12).map(b"".join),
    st.lists(LINES, min_size=1, max_size=8).map(b"\n".join),
).filter(bool)
KINDS = st.sampled_from(["cri", "plain", "zstd", "foreign"])


@given(st.lists(st.tuples(KINDS, DATA), min_size=1, max_size=5))
def test_columns_equal_what_plain_python_says(parts: list[tuple[str, bytes]]) -> None:
    """Times, streams, levels, texts and offsets, with fragments joined."""
    messages = [
        foreign(data, number)
        if kind == "foreign"
        else message(
            data,
            number,
            start=number * 1000,
            format="plain" if kind == "plain" else "cri",
            compressed=kind == "zstd",
        )
        for number, (kind, data) in enumerate(parts, 1)
    ]

    rows = lines_of(messages, ORIGIN).select(COMPARED).to_pylist()
    expected = rows_of(messages)
    for row, other in zip(rows, expected, strict=True):
        if other["offset"] is None and other["source"] is not None:
            row["offset"] = None
    assert rows == expected


@given(st.lists(DATA, min_size=1, max_size=5))
def test_offsets_give_back_the_bytes(parts: list[bytes]) -> None:
    """Each line stands in its source where its offset says; rows equal lines."""
    starts = [sum(len(part) for part in parts[:number]) for number in range(len(parts))]
    messages = [
        message(data, number, start=start, format="plain")
        for number, (data, start) in enumerate(zip(parts, starts, strict=True))
    ]

    table = lines_of(messages, ORIGIN)
    assert table.num_rows == sum(data.count(b"\n") + (not data.endswith(b"\n")) for data in parts)
    for row in table.to_pylist():
        start, data = starts[row["seq"]], parts[row["seq"]]
        line = data[row["offset"] - start :].split(b"\n")[0]
        assert line.decode("utf-8", "replace") == row["line"]


@given(st.lists(LINES, min_size=1, max_size=8).map(b"\n".join))
def test_a_cri_line_begins_where_its_offset_says(data: bytes) -> None:
    """Also where it is joined from fragments: the first of them stands there."""
    for row in lines_of([message(data, start=7)], ORIGIN).to_pylist():
        line = data[row["offset"] - 7 :].split(b"\n")[0]
        fields = line.split(b" ", 3)
        if row["fd"] is None:
            assert line.decode("utf-8", "replace") == row["line"]
        else:
            assert fields[1].decode() == row["fd"]
            seen = row["event_ts"]
            expected = cri.time_ns(line) // 1000
            assert (seen - EPOCH) // MICROSECOND == expected if seen else not expected
