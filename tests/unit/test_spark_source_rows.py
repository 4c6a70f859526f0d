"""Messages as rows of the data source: whatever bytes a stranger wrote, rows are made of them."""

from __future__ import annotations

import pytest

from logpipeline.wire import encode_headers
from logpipeline_spark.lines.message import Message
from logpipeline_spark.source.options import parse
from logpipeline_spark.source.rows import batches
from raw_nats import no_text
from spark_messages import ORIGIN, SUBJECT, TIME_NS, batch_for

DATA = b"odd\n"


@pytest.mark.parametrize("layout", ["lines", "messages"])
def test_bytes_that_are_no_text_are_rows_with_their_headers(layout: str) -> None:
    """In a subject, in the name of a header and in its value."""
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
    headers = encode_headers(batch_for(DATA, format="plain"), "id")
    messages = [
        Message(number, TIME_NS, subject.decode("utf-8", "surrogateescape"), block, data)
        for number, (subject, block, data) in enumerate(no_text(SUBJECT, headers, DATA), start=1)
    ]

    rows = [row for batch in batches(messages, ORIGIN, options) for row in batch.to_pylist()]

    assert [row["seq"] for row in rows] == [message.sequence for message in messages]
    shown = [str(row["headers"]) + str(row.get("subject")) for row in rows]
    assert sum("\\xff" in text for text in shown) >= len(messages) - 1
