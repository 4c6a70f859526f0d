"""What Iceberg's lists hold of a file never keeps its lines from the table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from logpipeline_spark.formats.iceberg import spelled
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.files import FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.scan import files
from tables.erased import Lake, iceberg, in_order
from tables.made import BEGIN, LIFE, STREAM, kept, lines, upkeep

OVER = BEGIN + timedelta(days=1)
# Its 16th character is the last one before the surrogates, which are no text.
SOURCE = "/var/log/nginx/\ud7ffx.log"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return iceberg(tmp_path)


def _of_source(first: int, last: int) -> pa.Table:
    rows = [{**row, "source": SOURCE} for row in lines(first, last).to_pylist()]
    return pa.Table.from_pylist(rows, schema=LINES)


def test_a_text_without_an_upper_bound_is_committed_and_merged(lake: Lake) -> None:
    """pyiceberg makes the bound by an increment of the 16th character; the next batch would meet
    the same text again.
    """
    table = lake.filled()
    for first in (41, 46):
        last = first + 4
        added = write_range(
            lake.storage, [_of_source(first, last)], FileName(STREAM, LIFE, first, last, 1)
        )
        table.commit_batch(str(first), {STREAM: Range(LIFE, first, last)}, added, kept(table))
    before = in_order(lake.read())

    assert {row["source"] for row in before if row["seq"] > 40} == {SOURCE}
    assert len(upkeep(lake.storage, lake.new_logs()).compact(OVER)) == 1
    assert in_order(lake.read()) == before
    assert lake.problems == ()
    # The bounds of other columns stay.
    [merged] = files(lake.new_logs())
    assert merged.first_us == int(BEGIN.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("file:/data/t/x.parquet", "file:///data/t/x.parquet"),
        ("file:///data/t/x.parquet", "file:///data/t/x.parquet"),
        ("s3://logs/t/x.parquet", "s3://logs/t/x.parquet"),
    ],
)
def test_a_file_that_spark_wrote_lies_where_ours_do(url: str, ours: str) -> None:
    """Its name is another one, and a table is refused whose files lie elsewhere."""
    assert spelled(url) == ours
