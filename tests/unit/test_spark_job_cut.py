"""Of a message that is sent again, exactly its new bytes become rows, also within a line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.deduplication import Range
from logpipeline_spark.job.stream_state import Known, Wanted, learn
from logpipeline_spark.job.task import cut, within
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Message, groups, seen_of
from tables.messages import ORIGIN, message

CRI = b"2026-11-20T10:00:00.000000000Z stdout "


def rows(sent: Message, *ranges: tuple[int, int]) -> list[tuple[int, str | None, str]]:
    """The rows of *ranges* of a message: where each begins, its piece and its text."""
    (group,) = groups([sent], ORIGIN)
    wanted = [Wanted(1, tuple(Range(*part, is_late=False) for part in ranges))]
    parts = cut(group, wanted)
    return [
        (row["offset"], row["piece"], row["line"])
        for table in (tables_of(parts, ORIGIN) if parts else ())
        for row in within(table, wanted).to_pylist()
    ]


def test_the_rest_of_a_line_whose_first_piece_is_known_is_kept() -> None:
    """A shipper that is started again with longer messages sends the whole line."""
    known: Known = {}
    line = b"A" * 1000 + b"B" * 500 + b"\n"
    first = message(line[:1000], 1, format="plain", ends_inside_line=True)
    again = message(line, 2, format="plain", resend=True)
    for each in (first, again):
        (group,) = groups([each], ORIGIN)
        learned = learn(known, seen_of(group))
        known.update(learned.changed)

    tables = tables_of(cut(group, learned.wanted), ORIGIN)
    (row,) = [row for table in tables for row in table.to_pylist()]

    assert (row["offset"], row["piece"], row["line"]) == (1000, "end", "B" * 500)


def test_lines_are_cut_where_the_wanted_bytes_end() -> None:
    """What adjoins is not cut."""
    sent = message(b"one\ntwo\nthree\n", format="plain")

    assert rows(sent, (4, 8)) == [(4, None, "two")]
    assert rows(sent, (2, 6)) == [(2, "end", "e"), (4, "begin", "tw")]
    assert rows(sent, (9, 11)) == [(9, "middle", "hr")]
    assert rows(sent, (0, 6), (6, 8)) == [(0, None, "one"), (4, None, "two")]
    assert rows(sent, (3, 5)) == [(4, "begin", "t")]
    assert rows(sent, (3, 4)) == []
    assert rows(sent) == []


def test_fragments_are_cut_between_two_of_them() -> None:
    """As where a shipper cuts them: both parts are valid lines."""
    first, second = CRI + b"P be\n", CRI + b"F gun\n"
    sent = message(first + second, format="cri")

    assert rows(sent, (len(first), len(first + second))) == [(len(first), "end", "gun")]
    assert rows(sent, (0, len(first))) == [(0, "begin", "be")]


def test_lines_of_a_runtime_are_not_cut_within() -> None:
    """Where a rebuilt table knows a line up to somewhere in it, only later lines are new."""
    first, second = CRI + b"P be\n" + CRI + b"F gun\n", CRI + b"F next\n"
    sent = message(first + second, format="cri")

    assert rows(sent, (10, len(first + second))) == [(len(first), None, "next")]
    assert rows(sent, (len(first) - 3, len(first + second))) == [(len(first), None, "next")]


@given(st.binary(min_size=1, max_size=40), st.data())
def test_each_wanted_byte_is_in_one_row(data: bytes, drawn: st.DataObject) -> None:
    """Whatever the ranges are."""
    data = bytes(97 + byte % 3 if byte % 4 else 10 for byte in data)
    edges = sorted(drawn.draw(st.sets(st.integers(0, len(data)), min_size=2, max_size=2)))
    ranges = list(zip(edges[::2], edges[1::2], strict=False))

    found = rows(message(data, format="plain", ends_inside_line=data[-1:] != b"\n"), *ranges)

    texts = {offset: text.encode() for offset, _, text in found}
    kept = bytearray(b"\n" * len(data))
    for offset, text in texts.items():
        kept[offset : offset + len(text)] = text
    outside = set(range(len(data))) - {n for start, end in ranges for n in range(start, end)}
    assert bytes(kept) == bytes(10 if n in outside else byte for n, byte in enumerate(data))
