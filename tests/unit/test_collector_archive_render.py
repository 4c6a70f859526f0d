"""How lines look in a file: as the program wrote them, as the runtime did, or as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.wire import Batch
from logpipeline_collector.archive.naming import Template, origin_of
from logpipeline_collector.archive.render import pieces, render

T = b"2026-11-21T10:00:00.5Z"
CRI = Batch(source="n/p/u/c/0", generation="0" * 16, start=0, end=9, lines=1, format="cri")
PLAIN = Batch(source="/x", generation="0" * 16, start=0, end=9, lines=1, format="plain")
NS = 1795255200_000000000


def rendered(output: str, batch: Batch | None, data: bytes) -> bytes:
    """Render for host h."""
    return render(output, origin_of("h", batch), batch, data, NS)


@given(st.binary(max_size=80))
def test_a_plain_file_is_the_file(data: bytes) -> None:
    """Byte for byte."""
    assert rendered("raw", PLAIN, data) == data


def test_a_containers_lines_are_what_the_program_wrote() -> None:
    """Fragments of both streams joined, empty lines kept."""
    data = (
        T + b" stdout P one \n" + T + b" stderr F oops\n" + T + b" stdout F two\n" + T
        + b" stdout F \n"
    )  # fmt: skip

    assert rendered("raw", CRI, data) == b"oops\none two\n\n"
    assert rendered("cri", CRI, data) == data


def test_a_line_in_no_format_is_kept_as_it_is() -> None:
    """A runtime once wrote a corrupt one."""
    assert rendered("raw", CRI, b"garbage\n" + T + b" stdout F x\n") == b"garbage\nx\n"


def test_a_piece_of_a_long_line_has_no_newline() -> None:
    """The next piece goes on in the same line."""
    assert rendered("raw", CRI, T + b" stdout P piece\n") == b"piece"


def test_json_carries_where_a_line_comes_from_and_every_byte() -> None:
    """Bytes that are no UTF-8 can be had back."""
    record = json.loads(rendered("json", CRI, T + b" stderr F \xff\x00e\n"))

    assert record["namespace"] == "n"
    assert record["stream"] == "stderr"
    assert record["time"] == T.decode()
    assert record["message"].encode("utf-8", "surrogateescape") == b"\xff\x00e"


def test_json_says_when_a_line_is_not_whole() -> None:
    """A piece of a line longer than a message."""
    records = rendered("json", PLAIN, b"whole\npiece").splitlines()

    assert [json.loads(record).get("partial", False) for record in records] == [False, True]


def test_lines_go_to_the_file_of_their_own_hour() -> None:
    """A batch that spans two is split between lines, never within a run of fragments."""
    early, late = b"2026-11-21T09:59:59Z", b"2026-11-21T10:00:00Z"
    run = early + b" stdout P a\n" + late + b" stdout F b\n"
    data = early + b" stdout F x\n" + run + late + b" stdout F y\n"
    batch = Batch(
        source="n/p/u/c/0", generation="0" * 16, start=0, end=len(data), lines=4, format="cri",
        first_time_ns=NS - 10**9, last_time_ns=NS,
    )  # fmt: skip
    split = list(pieces(Template("{host}-%H.log", "", 0), batch, data, NS))

    assert [period for period, _ in split] == ["{host}-09.log", "{host}-10.log"]
    assert split[0][1] == early + b" stdout F x\n" + run
    assert b"".join(piece for _, piece in split) == data
