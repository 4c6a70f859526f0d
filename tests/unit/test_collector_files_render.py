"""How lines look in a file: as the program wrote them, as the runtime did, or as JSON."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.origin import origin_of
from logpipeline.wire import Batch, Previous
from logpipeline_collector.files.naming import Template
from logpipeline_collector.files.render import Piece, Tail, pieces, render

T = b"2026-11-21T10:00:00.5Z"
OUT, ERR = T + b" stdout ", T + b" stderr "
CRI = Batch(source="n/p/u/c/0", generation="0" * 16, start=0, end=9, lines=1, format="cri")
PLAIN = Batch(source="/x", generation="0" * 16, start=0, end=9, lines=1, format="plain")
NS = 1795255200_000000000
Output = Literal["raw", "cri", "json"]


def piece_of(batch: Batch | None, data: bytes, start: int = 0) -> Piece:
    """Return all of a batch of host h that holds *data*."""
    if batch is not None:
        batch = replace(batch, start=start, end=start + len(data))
    return Piece(origin_of("h", batch), batch, data, start, NS)


def rendered(output: Output, batch: Batch | None, data: bytes) -> bytes:
    """Render for an empty file."""
    return render(output, piece_of(batch, data), None)[0]


def file_of(output: Output, *parts: tuple[Batch, bytes, int]) -> bytes:
    """Return the file after *parts*: a batch's headers, its bytes, its start."""
    tail: Tail | None = None
    written = b""
    for batch, data, start in parts:
        text, tail = render(output, piece_of(batch, data, start), tail)
        written += text
    return written


@given(st.binary(max_size=80))
def test_a_plain_file_is_the_file(data: bytes) -> None:
    """Byte for byte."""
    assert rendered("raw", PLAIN, data) == data


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_a_plain_file_is_the_file_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """Adjoining batches are written as if they were one."""
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = [(PLAIN, data[a:b], a) for a, b in pairwise(edges)]

    assert file_of("raw", *parts) == data
    assert file_of("cri", *parts) == data


def test_a_line_without_an_end_is_not_glued_to_another_files_first_line() -> None:
    """The next generation begins a line, as does every other source of the same file."""
    other = replace(PLAIN, generation="1" * 16)

    assert file_of("raw", (PLAIN, b"end", 0), (other, b"next\n", 0)) == b"end\nnext\n"
    assert file_of("raw", (PLAIN, b"end", 0), (PLAIN, b"later\n", 9)) == b"end\nlater\n"
    assert file_of("raw", (CRI, OUT + b"P end\n", 0), (PLAIN, b"x\n", 0)) == b"end\nx\n"


def test_a_containers_lines_are_what_the_program_wrote() -> None:
    """Fragments of both streams joined, empty lines kept."""
    data = OUT + b"P one \n" + ERR + b"F oops\n" + OUT + b"F two\n" + OUT + b"F \n"

    assert rendered("raw", CRI, data) == b"oops\none two\n\n"
    assert rendered("cri", CRI, data) == data


TEXTS = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")), max_size=8)


@given(TEXTS)
def test_the_quick_way_and_the_slow_way_write_the_same(texts: list[bytes]) -> None:
    """Lines without fragments take the quick one, unless there is a fragment among them."""
    data = b"".join(OUT + b"F " + text + b"\n" for text in texts)
    slow = rendered("raw", CRI, data + OUT + b"P a\n" + OUT + b"F b\n")

    assert rendered("raw", CRI, data) + b"ab\n" == slow


def test_a_line_in_no_format_is_kept_as_it_is() -> None:
    """A runtime once wrote a corrupt one."""
    assert rendered("raw", CRI, b"garbage\n" + OUT + b"F x\n") == b"garbage\nx\n"
    assert rendered("raw", CRI, b"a b  c\n" + OUT + b"F\n") == b"a b  c\n\n"


def test_a_run_of_fragments_goes_on_in_the_next_batch() -> None:
    """A line of 64 MB arrives as one line, whatever its stream."""
    first = OUT + b"P one \n" + OUT + b"P two \n"
    second = OUT + b"P three \n" + OUT + b"F four\n" + ERR + b"F other\n"
    parts = (replace(CRI, ends_inside_line=True), first, 0), (CRI, second, len(first))

    assert file_of("raw", *parts) == b"one two three four\nother\n"


def test_a_run_of_fragments_goes_on_in_the_next_generation() -> None:
    """A runtime that kubelet tells to begin a new file cuts the line that it is about to write."""
    ends = replace(CRI, ends_inside_line=True)
    follows = replace(
        CRI, generation="1" * 16, previous=Previous(CRI.generation, None), starts_inside_line=True
    )
    first, second = OUT + b"F one\n" + OUT + b"P two, \n", OUT + b"F cut\n" + OUT + b"F three\n"

    assert file_of("raw", (ends, first, 0), (follows, second, 0)) == b"one\ntwo, cut\nthree\n"


@pytest.mark.parametrize(
    "change",
    [
        {"starts_inside_line": False},
        {"previous": None},
        {"previous": Previous("2" * 16, None)},
        {"source": "n/p/u/c/1"},
    ],
)
def test_a_run_goes_on_in_no_other_file(change: dict[str, Any]) -> None:
    """Neither in one that does not follow, nor in one that begins with a line of its own."""
    ends = replace(CRI, ends_inside_line=True)
    follows = replace(
        CRI, generation="1" * 16, previous=Previous(CRI.generation, None), starts_inside_line=True
    )
    parts = (ends, OUT + b"P one\n", 0), (replace(follows, **change), OUT + b"F two\n", 0)

    assert file_of("raw", *parts) == b"one\ntwo\n"


def test_another_streams_line_does_not_go_into_an_open_run() -> None:
    """The run is cut then, and no byte is lost."""
    first, second = OUT + b"P one \n", ERR + b"F oops\n" + OUT + b"F two\n"
    parts = (replace(CRI, ends_inside_line=True), first, 0), (CRI, second, len(first))

    assert file_of("raw", *parts) == b"one \noops\ntwo\n"


def test_a_runtimes_line_that_was_cut_goes_on_in_the_next_batch() -> None:
    """Its second piece begins without time and stream."""
    data = OUT + b"F " + b"a" * 50 + b"\n" + OUT + b"F next\n"
    for cut in (len(OUT) + 2, len(OUT) + 20, len(OUT) + 52):
        parts = (
            (replace(CRI, ends_inside_line=True), data[:cut], 0),
            (CRI, data[cut:], cut),
        )
        assert file_of("raw", *parts) == b"a" * 50 + b"\nnext\n"


def test_json_carries_where_a_line_comes_from_and_every_byte() -> None:
    """Bytes that are no UTF-8 can be had back."""
    data = ERR + b"F \xff\x00e\n" + ERR + b'F "ok"\n'
    bad, good = (json.loads(line) for line in rendered("json", CRI, data).splitlines())

    assert bad["host"], bad["namespace"] == ("h", "n")
    assert (bad["pod"], bad["container"], bad["source"]) == ("p", "c", "n/p/u/c/0")
    assert (bad["stream"], bad["time"]) == ("stderr", T.decode())
    assert base64.b64decode(bad["message_base64"]) == b"\xff\x00e"
    assert bad["message"] == "\ufffd\x00e"
    assert good["message"] == '"ok"'
    assert "message_base64" not in good


@given(st.binary(max_size=60))
def test_json_is_utf8_whatever_the_bytes_are(data: bytes) -> None:
    """So that every parser can read it: lone surrogates are not everybody's JSON."""
    for line in rendered("json", PLAIN, data).decode("utf-8").split("\n")[:-1]:
        assert json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")


def test_json_says_when_a_line_is_not_whole() -> None:
    """A piece of a line longer than a message."""
    records = rendered("json", PLAIN, b"whole\npiece").splitlines()

    assert [json.loads(record).get("partial", False) for record in records] == [False, True]


def test_lines_go_to_the_file_of_their_own_hour() -> None:
    """A batch that spans two is split between lines, never within a run of fragments."""
    early, late = b"2026-11-21T09:59:59Z", b"2026-11-21T10:00:00Z"
    run = early + b" stdout P a\n" + late + b" stdout F b\n"
    data = early + b" stdout F x\n" + run + late + b" stdout F y\n"
    template = Template("{host}-%H.log", cluster="", partition=0)
    split = list(pieces(template, piece_of(CRI, data), first_ns=NS - 10**9, last_ns=NS))
    places = [template.place(piece.origin, period) for period, piece in split]

    assert places == ["h-09.log", "h-10.log"]
    assert split[0][1].data == early + b" stdout F x\n" + run
    assert b"".join(piece.data for _, piece in split) == data
    assert split[1][1].start == len(split[0][1].data)
