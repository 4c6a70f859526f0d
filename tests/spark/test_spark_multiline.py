"""Events in Spark: the same as DuckDB's and a `Joiner`'s."""

from __future__ import annotations

import pytest

from logpipeline.multiline import Limits, chosen
from logpipeline_spark.errors import Refused
from logpipeline_spark.events import COLUMNS, events
from tables.local_spark import local_spark
from tables.traces import ORDINARY, SOURCES, TRACES, by_key, joined, lines_of, row_of, table_of


def test_spark_decides_as_a_joiner() -> None:
    """All traces and ordinary lines, of several sources in between one another, with every preset,
    an own expression and limits that bite.
    """
    texts = [text for traces in TRACES.values() for text in traces]
    lines = lines_of(*texts, ORDINARY, *reversed(texts))
    rows = [
        row_of(len(SOURCES) * number + source, line, **SOURCES[source])
        for number, line in enumerate(lines)
        for source in range(len(SOURCES))
    ]
    table = local_spark().createDataFrame(table_of(rows))
    limits = Limits(lines=7, bytes=400)

    for names, begin in (((), None), (("java", "go"), r"^\S+ '\d{2}|^\[")):
        found = events(table, *names, begin=begin, limits=limits).toArrow()
        assert sorted(found.column_names) == sorted([*COLUMNS, "text", "lines"])
        assert by_key(found.to_pylist()) == joined(rows, chosen(names, begin), limits)


def test_a_stream_without_end_is_refused() -> None:
    """With what to do instead."""
    stream = local_spark().readStream.format("rate").load()

    with pytest.raises(Refused, match="call events within foreachBatch"):
        events(stream)
