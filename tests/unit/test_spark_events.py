"""Events in SQL: DuckDB finds what a `Joiner` finds, source by source, whatever lies in between."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.multiline import AUTO, LIMITS, PRESETS, Limits, Rules, chosen
from logpipeline_spark.events import COLUMNS, duckdb_query
from tables.traces import SOURCES, TRACES, by_key, joined, lines_of, row_of, some_rows, table_of

Rows = list[dict[str, object]]


def asked(
    rows: Sequence[dict[str, object]], rules: Sequence[Rules], limits: Limits = LIMITS
) -> Rows:
    """Return the events of *rows* as DuckDB has them."""
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("lines", table_of(rows))
    answer = connection.execute(duckdb_query("lines", rules, limits))
    names = [column[0] for column in answer.description or ()]
    assert sorted(names) == sorted([*COLUMNS, "text", "lines"])
    return by_key(dict(zip(names, row, strict=True)) for row in answer.fetchall())


@given(
    some_rows(),
    st.sampled_from([chosen([name]) for name in PRESETS] + [chosen(), chosen(["java"], "^[0-9]")]),
    st.sampled_from([LIMITS, Limits(lines=3), Limits(bytes=100), Limits(lines=4, bytes=150)]),
)
def test_duckdb_decides_as_a_joiner(rows: Rows, rules: tuple[Rules, ...], limits: Limits) -> None:
    """Every column of every event, of any lines in any order."""
    assert asked(rows, rules, limits) == joined(rows, rules, limits)


def test_what_stands_in_between_breaks_no_trace() -> None:
    """Two streams of a container, files, and another host's file of that name, line by line."""
    trace = TRACES["python"][0]
    rows = [
        row_of(5 * number + source, line, **SOURCES[source])
        for number, line in enumerate(lines_of(trace))
        for source in range(5)
    ]

    found = asked(rows, chosen([AUTO]))

    assert [event["text"] for event in found] == [trace] * 5
    assert {event["lines"] for event in found} == {len(lines_of(trace))}


def test_lines_are_joined_as_they_stand_in_their_file() -> None:
    """Also those that were sent again, and came after others."""
    rows = [
        row_of(1, "java.lang.Error: x", offset=0),
        row_of(2, "\t... 1 more", offset=40),
        row_of(3, "\tat a.B.c(B.java:1)", offset=20),
    ]

    (event,) = asked(rows, chosen(["java"]))

    assert event["text"] == "java.lang.Error: x\n\tat a.B.c(B.java:1)\n\t... 1 more"


def test_lines_of_other_clients_are_joined_within_a_message() -> None:
    """They name no file: two messages may be of two programs."""
    head, frame = "java.lang.Error: x", "\tat a.B.c(B.java:1)"
    nowhere = {"source": None, "generation": None, "offset": None}
    rows = [row_of(seq, [head, frame][idx], idx=idx, **nowhere) for seq in (1, 2) for idx in (0, 1)]
    rows.append(row_of(3, frame, **nowhere))

    found = asked(rows, chosen(["java"]))

    assert [event["text"] for event in found] == [f"{head}\n{frame}", f"{head}\n{frame}", frame]


@pytest.mark.parametrize(
    ("levels", "level"), [((None, "warn", "error"), "warn"), ((None, None, None), None)]
)
def test_the_first_line_with_a_level_says_it(
    levels: tuple[str | None, ...], level: str | None
) -> None:
    """That is the one that logged the trace: words in the others are no levels."""
    lines = ["java.lang.Error: x", "\tat a.B.c(B.java:1)", "\tat a.B.d(B.java:2)"]
    rows = [row_of(seq, lines[seq], level=levels[seq]) for seq in range(3)]

    (event,) = asked(rows, chosen(["java"]))

    assert (event["seq"], event["level"]) == (0, level)


def test_an_event_is_cut_by_its_bytes() -> None:
    """Not by its letters, which are fewer."""
    rows = [row_of(seq, text) for seq, text in enumerate(["begin", "é" * 5, "é"])]

    found = asked(rows, chosen(begin="^begin"), Limits(bytes=15))

    assert [event["lines"] for event in found] == [2, 1]
