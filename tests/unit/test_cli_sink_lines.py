"""What a line is called in other systems: it has the same name however its message comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.sink_batches import batch_of, foreign, message
from logpipeline.consuming.message import Batch
from logpipeline_cli.sinks import loki, opensearch, otlp
from logpipeline_cli.sinks.destination import created_of, line_names
from logpipeline_cli.sinks.kafka_records import shape_of

CRI = b"2026-11-25T10:00:00.000000001Z stdout F one\n2026-11-25T10:00:00.000000001Z stdout F one\n"
FRAGMENTS = (
    b"2026-11-25T10:00:00.000000001Z stdout P on\n"
    b"2026-11-25T10:00:00.000000002Z stderr P tw\n"
    b"not of a runtime\n"
    b"2026-11-25T10:00:00.000000003Z stdout F e\n"
    b"2026-11-25T10:00:00.000000004Z stdout F three\n"
    b"2026-11-25T10:00:00.000000005Z stderr P o\n"
)


def of_kafka(batch: Batch) -> Iterable[object]:
    """Return the header that names each line."""
    shape = shape_of("logs", "host", "json")
    created = created_of(batch)
    found = [record for each in batch.messages for record in shape.records(each, created)]
    return [dict(record.headers)["id"] for record in found]


def of_loki(batch: Batch) -> Iterable[object]:
    """Return what names each line in its structured metadata."""
    return [entry.metadata["line_id"] for entry in loki.entries(batch, {})]


def of_opensearch(batch: Batch) -> Iterable[object]:
    """Return the id of each document."""
    lines = [each.split(b"\n")[0] for each in opensearch.documents(batch, "logs")]
    return [json.loads(line)["create"]["_id"] for line in lines]


def of_otlp(batch: Batch) -> Iterable[object]:
    """Return the first attribute of each record."""
    attributes = [json.loads(record.data)["attributes"][0] for record in otlp.records(batch)]
    assert {each["key"] for each in attributes} == {"log.record.uid"}
    return [each["value"]["stringValue"] for each in attributes]


KINDS = pytest.mark.parametrize(
    "names",
    [of_kafka, of_loki, of_opensearch, of_otlp],
    ids=["kafka", "loki", "opensearch", "otlp"],
)
Names = Callable[[Batch], Iterable[object]]


@KINDS
def test_a_line_has_its_name_however_its_batch_is_cut(names: Names) -> None:
    """Of a batch that is refused each message comes alone."""
    both = [message(1, b"one\none\n"), message(2, CRI, form="cri"), foreign(3, b"one\none")]
    together = list(names(batch_of(both)))

    assert together == [name for each in both for name in names(batch_of([each]))]
    assert len(set(together)) == len(together) == 6


@KINDS
def test_a_line_that_is_sent_again_has_its_name(names: Names) -> None:
    """A dead letter is stored anew, under another sequence: lines that were taken are known."""
    for data, form in ((b"one\ntwo\n", "plain"), (FRAGMENTS, "cri")):
        first, again = (message(number, data, form=form, start=70) for number in (1, 97))
        assert names(batch_of([first])) == names(batch_of([again]))


@KINDS
def test_equal_lines_elsewhere_have_other_names(names: Names) -> None:
    """Another host, another file, another one of the same path, another place in it."""
    texts = [
        message(1, b"one\n", start=70),
        message(2, b"one\n", start=74),
        message(3, b"one\n", start=70, host="node-b"),
        message(4, b"one\n", start=70, form="cri"),
        message(5, b"one\n", start=70, generation="fedcba9876543210"),
        # The end of its line was not there yet.
        message(6, b"one", start=70),
        # Forged: it must not pass for the one that it stands for.
        message(7, b"two\n", start=70),
    ]
    found = list(names(batch_of(texts)))

    assert len(set(found)) == len(texts)


def test_lines_of_a_stranger_are_counted_in_their_message() -> None:
    """It says nothing of a file."""
    batch = batch_of([foreign(7, b"one\ntwo")])

    assert of_opensearch(batch) == [f"LOGS_7-{created_of(batch)}-7-{number}" for number in (0, 1)]


@pytest.mark.parametrize("form", ["plain", "cri"])
def test_a_line_has_its_name_in_whatever_piece_it_comes(form: str) -> None:
    """A shipper sends a range again that was another one, and the reader cuts off what is known."""
    data = CRI + FRAGMENTS
    whole = message(1, data, form=form, start=70)
    names = line_names(whole, "")
    behind = message(2, b"before\n" + data, form=form, start=63)
    behind.parts = [(70 + len(CRI), 70 + len(data))]
    around = message(3, data, form=form, start=70)
    around.parts = [(70, 70 + len(CRI)), (70 + len(CRI), 70 + len(data))]

    assert line_names(behind, "") == names[2:]
    assert line_names(around, "") == names


ROW = st.one_of(
    st.builds(
        lambda stream, tag, text: b"2026-11-25T10:00:00Z %b %b %b" % (stream, tag, text),
        st.sampled_from([b"stdout", b"stderr", b"other"]),
        st.sampled_from([b"P", b"F", b"P:x"]),
        st.sampled_from([b"", b"a", b"b c"]),
    ),
    st.sampled_from([b"", b"x", b"y stdout"]),
)


@given(st.lists(ROW, min_size=1, max_size=8), st.booleans(), st.sampled_from(["cri", "plain"]))
def test_each_line_of_any_message_has_a_name(rows: list[bytes], is_cut: bool, form: str) -> None:
    """Of its own, with the places of its first and its last byte."""
    data = b"\n".join(rows) + (b"" if is_cut and rows[-1] else b"\n")
    made = message(1, data, form=form, start=0)
    places = [name.rsplit("-", 3)[1:3] for name in line_names(made, "")]

    assert len(places) == len(made.lines) == len({start for start, _ in places})
    for line, (start, end) in zip(made.lines, places, strict=True):
        held = data[int(start) : int(end)].removesuffix(b"\n")
        assert int(start) == 0 or data[int(start) - 1 : int(start)] == b"\n"
        if form == "plain":
            assert line.text == held
        elif b"\n" not in held:
            assert held.endswith(line.text)
