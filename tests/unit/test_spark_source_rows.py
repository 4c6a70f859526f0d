"""Messages as rows of the data source: whatever bytes a stranger wrote, rows are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from components.raw_nats import Message as RawMessage
from components.raw_nats import no_text
from components.strange_messages import strange_messages
from logpipeline.wire import encode_headers
from logpipeline_spark.lines.messages import Message
from logpipeline_spark.source.datasource import batches
from logpipeline_spark.source.options import parse
from tables.messages import ORIGIN, SUBJECT, TIME_NS, batch_for

DATA = b"odd\n"


@pytest.mark.parametrize("layout", ["lines", "messages"])
def test_bytes_that_are_no_text_are_rows_with_their_headers(layout: str) -> None:
    """In a subject, in the name of a header and in its value."""
    headers = encode_headers(batch_for(DATA, format="plain"), "id")
    messages = no_text(SUBJECT, headers, DATA)

    rows = rows_of(messages, layout)

    assert [row["seq"] for row in rows] == [*range(1, len(messages) + 1)]
    shown = [str(row["headers"]) + str(row.get("subject")) for row in rows]
    assert sum("\\xff" in text for text in shown) >= len(messages) - 1


@pytest.mark.parametrize("layout", ["lines", "messages"])
@pytest.mark.parametrize("seed", range(20))
def test_each_message_of_strangers_is_rows(layout: str, seed: int) -> None:
    """Whatever they claim; none is left out, and none ends the query."""
    messages = [*strange_messages(seed, 60, SUBJECT)]

    rows = rows_of(messages, layout)

    assert {row["seq"] for row in rows} == {*range(1, len(messages) + 1)}


def rows_of(messages: Sequence[RawMessage], layout: str) -> list[dict[str, Any]]:
    """Return the rows of *messages*, as a stream would number them, with their headers."""
    options = parse(
        {
            "servers": "nats://a:4222",
            "stream": "LOGS",
            "partitions": "10",
            "subject": "logs",
            "format": layout,
            "includeHeaders": "true",
        }
    )
    stored = [
        Message(number, TIME_NS, subject.decode("utf-8", "surrogateescape"), block, data)
        for number, (subject, block, data) in enumerate(messages, start=1)
    ]
    return [row for batch in batches(stored, ORIGIN, options) for row in batch.to_pylist()]
